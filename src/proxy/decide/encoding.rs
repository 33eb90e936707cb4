//! The form and the representation of a response, from its negotiation and its resource. Pure.

use crate::{
    api::{
        GroupVersionResource,
        field::is_built_in_group,
        form::Form,
        media::{
            Include, Metadata, MetadataKind, Negotiated, Partial, Representation, Table,
            UnmodelledMedia,
        },
    },
    cache::store::Snapshot,
};

/// The encoding of a response from memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Encoding {
    /// The form of the replica.
    pub form: Form,
    /// The representation of each object.
    pub representation: Representation,
    /// `true` if only a custom resource is answered so: its client prefers protobuf, which whole
    /// objects of another type may have.
    pub only_custom: bool,
}

/// The reason why memory has no response in the negotiated encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoEncoding {
    /// The conversion is one of a list for an object, or the other way round.
    OtherKind,
    /// The apiserver answers in this encoding.
    Unmodelled(UnmodelledMedia),
}

// === impl Encoding ===

impl Encoding {
    /// Returns the encoding of objects of a resource, or of a list of them.
    pub(super) fn of(
        media: Negotiated,
        resource: &GroupVersionResource,
        (kind, include): (MetadataKind, Include),
    ) -> Result<Self, NoEncoding> {
        let is_built_in = is_built_in_group(&resource.group);
        let object =
            |form| Self { form, representation: Representation::Object, only_custom: false };
        match media {
            Negotiated::Json => Ok(object(Form::Json)),
            Negotiated::Protobuf { .. } if is_built_in => Ok(object(Form::Protobuf)),
            Negotiated::Protobuf { json: true } => {
                Ok(Self { only_custom: true, ..object(Form::Json) })
            }
            Negotiated::Protobuf { json: false } => {
                Err(NoEncoding::Unmodelled(UnmodelledMedia::Protobuf))
            }
            Negotiated::Metadata(metadata) => {
                Self::of_metadata(Form::Json, Form::Json, metadata, kind)
            }
            Negotiated::ProtobufMetadata(metadata) if is_built_in => {
                Self::of_metadata(Form::Protobuf, Form::Protobuf, metadata, kind)
            }
            // A custom resource has a protobuf form for its metadata only (S-CT-04).
            Negotiated::ProtobufMetadata(metadata) => {
                let encoding = Self::of_metadata(Form::Json, Form::Protobuf, metadata, kind)?;
                Ok(Self { only_custom: true, ..encoding })
            }
            Negotiated::Table(_) if is_printed_in_other_order(resource) => {
                Err(NoEncoding::Unmodelled(UnmodelledMedia::Table))
            }
            Negotiated::Table(version) => {
                let representation = Representation::Table(Table { version, include });
                Ok(Self { representation, ..object(Form::Table) })
            }
            Negotiated::Unmodelled(media) => Err(NoEncoding::Unmodelled(media)),
        }
    }

    /// Reports whether the objects of a replica may have protobuf, although the response does not.
    pub(super) fn is_refused(&self, snapshot: &Snapshot) -> bool {
        self.only_custom && !snapshot.is_custom()
    }

    /// Returns the encoding of metadata in the form `shown`, from objects in the form `form`.
    fn of_metadata(
        form: Form,
        shown: Form,
        metadata: Metadata,
        kind: MetadataKind,
    ) -> Result<Self, NoEncoding> {
        if metadata.kind != kind {
            return Err(NoEncoding::OtherKind);
        }
        let partial = Partial { version: metadata.version, form: shown };
        let representation = Representation::Metadata(partial);
        Ok(Self { form, representation, only_custom: false })
    }
}

/// Reports whether the apiserver sorts the rows of a Table by something else than the key.
fn is_printed_in_other_order(resource: &GroupVersionResource) -> bool {
    (&*resource.group, &*resource.resource) == ("flowcontrol.apiserver.k8s.io", "flowschemas")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::media::MetadataVersion;

    #[test]
    fn a_response_has_the_first_accepted_form_of_its_type() {
        let pods = GroupVersionResource::new("", "v1", "pods");
        let widgets = GroupVersionResource::new("x.io", "v1", "widgets");
        let (version, kind) = (MetadataVersion::V1, MetadataKind::List);
        let (metadata, include) = (Metadata { version, kind }, Include::Metadata);
        let whole = |form, only_custom| {
            Ok(Encoding { form, representation: Representation::Object, only_custom })
        };
        let partial = |held, form| {
            let representation = Representation::Metadata(Partial { version, form });
            Ok(Encoding { form: held, representation, only_custom: held != form })
        };
        let refused = |media| Err(NoEncoding::Unmodelled(media));
        let (json, both) = (Negotiated::Json, Negotiated::Protobuf { json: true });
        let alone = Negotiated::Protobuf { json: false };
        let in_json = Negotiated::Metadata(metadata);
        let in_protobuf = Negotiated::ProtobufMetadata(metadata);
        for (media, of_pods, of_widgets) in [
            (json, whole(Form::Json, false), whole(Form::Json, false)),
            (both, whole(Form::Protobuf, false), whole(Form::Json, true)),
            (alone, whole(Form::Protobuf, false), refused(UnmodelledMedia::Protobuf)),
            (in_json, partial(Form::Json, Form::Json), partial(Form::Json, Form::Json)),
            (
                in_protobuf,
                partial(Form::Protobuf, Form::Protobuf),
                partial(Form::Json, Form::Protobuf),
            ),
        ] {
            assert_eq!(Encoding::of(media, &pods, (kind, include)), of_pods, "{media:?}");
            assert_eq!(Encoding::of(media, &widgets, (kind, include)), of_widgets, "{media:?}");
        }
        let other = Encoding::of(in_json, &pods, (MetadataKind::Object, include));
        assert_eq!(other, Err(NoEncoding::OtherKind));
    }
}
