//! The two resources that documents are made from, and the requests for them. Plain data.

/// One of the two resources.
pub(super) struct Kind {
    pub(super) role: Role,
    pub(super) path: &'static str,
    /// The parameters of its list. Any state will do: the watch tells what came after it.
    pub(super) list: &'static str,
    pub(super) accept_list: &'static str,
    pub(super) accept_watch: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Definitions,
    /// APIServices show which groups have servers of their own.
    Services,
}

/// The followed resources. Of definitions, whose schemas are large, only the metadata is requested;
/// APIServices are small.
pub(super) const FOLLOWED: [Kind; 2] = [
    Kind {
        role: Role::Definitions,
        path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        list: "?resourceVersion=0",
        accept_list: "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        accept_watch: "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    },
    Kind {
        role: Role::Services,
        path: "/apis/apiregistration.k8s.io/v1/apiservices",
        list: "?resourceVersion=0",
        accept_list: "application/json",
        accept_watch: "application/json",
    },
];

/// The index of definitions in [`FOLLOWED`].
pub(super) const DEFINITIONS: usize = 0;
