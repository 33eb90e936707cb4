//! Tables, and the versions of `meta.k8s.io` that define them.

/// Versions of `meta.k8s.io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetadataVersion {
    /// v1.
    V1,
    /// v1beta1.
    V1Beta1,
}

/// A Table, as a request asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Table {
    /// The version of `meta.k8s.io`.
    pub version: MetadataVersion,
    /// The part of each object that its row contains.
    pub include: Include,
}

/// `includeObject`: the part of each object that a Table's row contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Include {
    /// Nothing.
    None,
    /// A PartialObjectMetadata.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

// === impl MetadataVersion ===

impl MetadataVersion {
    /// Returns the `apiVersion` of the converted object.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}
