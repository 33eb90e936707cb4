//! The kinds of writes, and the state that reads must show after each.

/// A kind of write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// POST of a new object.
    Create,
    /// POST with `generateName`: the name is the server's.
    CreateWithGeneratedName,
    /// PUT of a changed object.
    Update,
    /// PATCH by JSON patch.
    JsonPatch,
    /// PATCH by merge patch.
    MergePatch,
    /// PATCH by strategic merge patch.
    StrategicPatch,
    /// PATCH by server-side apply.
    Apply,
    /// A change that moves the object out of the list's selector and back.
    Relabel,
    /// PATCH of the status subresource.
    Status,
    /// DELETE of one object.
    Delete,
    /// DELETE of a collection by selector.
    DeleteCollection,
    /// The change that takes the last finalizer of an object being deleted.
    Finalizer,
    /// POST of an eviction.
    Eviction,
}

/// The state that reads must show after a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The object, with this value, at this version where the response contained it.
    Present {
        /// The object's name.
        name: String,
        /// The value written.
        value: String,
        /// The version in the response to the write.
        version: Option<u64>,
        /// `true` if the loop's selector still selects it.
        selected: bool,
    },
    /// No such object.
    Absent {
        /// The object's name.
        name: String,
    },
}

// === impl Operation ===

impl Operation {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Create,
        Self::CreateWithGeneratedName,
        Self::Update,
        Self::JsonPatch,
        Self::MergePatch,
        Self::StrategicPatch,
        Self::Apply,
        Self::Relabel,
        Self::Status,
        Self::Delete,
        Self::DeleteCollection,
        Self::Finalizer,
        Self::Eviction,
    ];

    /// The collection for this kind.
    pub fn collection(self) -> String {
        let namespace = super::NAMESPACE;
        match self {
            Self::StrategicPatch | Self::Eviction | Self::Status => {
                format!("/api/v1/namespaces/{namespace}/pods")
            }
            Self::MergePatch | Self::Relabel => {
                format!("/apis/shop.example.com/v1/namespaces/{namespace}/widgets")
            }
            _ => format!("/api/v1/namespaces/{namespace}/configmaps"),
        }
    }

    /// The value of the label its objects carry; also part of their names.
    pub fn label(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

// === impl Expected ===

impl Expected {
    /// The object's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Present { name, .. } | Self::Absent { name } => name,
        }
    }
}
