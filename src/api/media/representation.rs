//! The representation of objects in a response.

use super::{MetadataVersion, Table};
use crate::api::form::Form;

/// The representation of each object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Representation {
    /// The whole object.
    #[default]
    Object,
    /// A PartialObjectMetadata (S-CT-03, S-LIST-63).
    Metadata(Partial),
    /// A row of a Table (S-CT-30).
    Table(Table),
}

/// A PartialObjectMetadata, as a response contains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Partial {
    /// The version of `meta.k8s.io`.
    pub version: MetadataVersion,
    /// The form. A custom resource, which is held in JSON, has its metadata in protobuf, too
    /// (S-CT-04).
    pub form: Form,
}

// === impl Representation ===

impl Representation {
    /// Returns the form of a response with objects that are held in a form.
    pub fn form(self, held: Form) -> Form {
        match self {
            Self::Metadata(partial) => partial.form,
            Self::Object | Self::Table(_) => held,
        }
    }
}
