//! Accept and Accept-Encoding negotiation.
#![expect(unused_variables, missing_docs, reason = "stub")]

/// What the apiserver would answer with, as far as we can produce it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Negotiated {
    /// Plain compact JSON of the object itself: we can produce it exactly.
    Json,
    /// The client prefers protobuf but lists JSON too: JSON is a legal answer (clients.md rule 5).
    JsonInsteadOfProtobuf,
    /// Anything else: Table, PartialObjectMetadata, YAML, CBOR, pretty, protobuf alone, 406.
    Unmodelled(UnmodelledMedia),
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnmodelledMedia {
    Protobuf,
    Table,
    PartialObjectMetadata,
    Yaml,
    Cbor,
    Pretty,
    Other,
}
impl Negotiated {
    /// `accept`: all Accept header values joined with ','; None when absent. `pretty`: the raw query value.
    pub fn negotiate(accept: Option<&str>, pretty: Option<&str>, user_agent: Option<&str>) -> Self {
        todo!()
    }
}
/// gzip iff Accept-Encoding has a bare token `gzip` (S-HDR-01).
pub fn accepts_gzip(accept_encoding: Option<&str>) -> bool {
    todo!()
}
