//! Accept headers as clients send them, and invalid ones.

use proptest::prelude::*;

use super::*;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

fn negotiate(accept: &str) -> Negotiated {
    Negotiated::negotiate(Some(accept), None, Some(b"okhttp/3.12.12"))
}

/// Returns `json`, `protobuf+json`, the conversion, or the reason.
fn word(negotiated: Negotiated) -> &'static str {
    match negotiated {
        Negotiated::Metadata(Metadata { kind: MetadataKind::Object, version }) => match version {
            MetadataVersion::V1 => "object metadata v1",
            MetadataVersion::V1Beta1 => "object metadata v1beta1",
        },
        Negotiated::Metadata(Metadata { kind: MetadataKind::List, version }) => match version {
            MetadataVersion::V1 => "list metadata v1",
            MetadataVersion::V1Beta1 => "list metadata v1beta1",
        },
        Negotiated::Table(MetadataVersion::V1) => "table v1",
        Negotiated::Table(MetadataVersion::V1Beta1) => "table v1beta1",
        Negotiated::ProtobufMetadata(Metadata { kind: MetadataKind::Object, .. }) => {
            "object metadata in protobuf"
        }
        Negotiated::ProtobufMetadata(Metadata { kind: MetadataKind::List, .. }) => {
            "list metadata in protobuf"
        }
        Negotiated::Protobuf { json: true } => "protobuf+json",
        other => other.as_str(),
    }
}

#[test]
fn only_known_conversions_to_metadata_are_accepted() {
    let table = [
        ("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "object metadata v1"),
        ("application/json;as=PartialObjectMetadata;g=meta.k8s.io", "partial-object-metadata"),
        (
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1;x=y",
            "partial-object-metadata",
        ),
        (
            "application/json;as=PartialObjectMetadata;g=metrics.k8s.io;v=v1",
            "partial-object-metadata",
        ),
        (
            "application/json;v=v1beta1;g=meta.k8s.io;as=PartialObjectMetadataList;q=0.5",
            "list metadata v1beta1",
        ),
        (
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
             application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
            "list metadata in protobuf",
        ),
        (
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
             application/json",
            "list metadata in protobuf",
        ),
    ];
    for (accept, expected) in table {
        assert_eq!(word(negotiate(accept)), expected, "{accept}");
    }
}

#[test]
fn accept_headers_are_negotiated_as_the_apiserver_does() {
    let table = [
        ("", "json"),
        ("application/json", "json"),
        ("application/json, */*;q=0.8", "json"),
        ("*/*", "json"),
        ("*", "other"),
        ("*/", "other"),
        ("application/*", "other"),
        ("application/*,text/html", "other"),
        ("application/*,application/json;q=0.1", "json"),
        ("application/json;q=0", "json"),
        ("application/json; charset=utf-8", "json"),
        (" application/json ; q=0.5 ", "json"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "json"),
        ("text/plain, application/json", "json"),
        ("application/json;", "json"),
        ("application/json;as", "json"),
        ("*/*,application/yaml;q=0.1", "yaml"),
        ("application/*,application/yaml;q=0.1", "yaml"),
        ("application/yaml,application/json", "yaml"),
        ("application/yaml;q=0.5,application/json", "json"),
        ("application/vnd.kubernetes.protobuf,application/json", "protobuf+json"),
        ("application/vnd.kubernetes.protobuf, */*", "protobuf+json"),
        ("application/json;q=0.5,application/vnd.kubernetes.protobuf", "protobuf+json"),
        ("application/json,application/vnd.kubernetes.protobuf", "json"),
        (PROTOBUF, "protobuf"),
        ("application/vnd.kubernetes.protobuf,application/json;q=0", "protobuf+json"),
        ("application/vnd.kubernetes.protobuf,application/json;as=Table", "protobuf"),
        ("application/vnd.kubernetes.protobuf,text/html", "protobuf"),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "table v1"),
        ("application/json;g=meta.k8s.io;v=v1;as=Table", "table v1"),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", "table v1beta1"),
        ("application/json;as=Table;v=v1;g=meta.k8s.io;pretty=1", "table"),
        ("application/json;as=Table;v=v2;g=meta.k8s.io", "table"),
        ("application/json;as=Table;v=v1", "table"),
        ("application/json;pretty=1", "pretty"),
        ("application/json;pretty=0", "other"),
        ("application/json;stream=watch", "other"),
        ("application/json;drop=metadata.managedFields", "other"),
        ("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", "other"),
        ("application/cbor", "other"),
        ("application/cbor,application/json", "cbor"),
        ("APPLICATION/JSON", "other"),
        ("text/html", "other"),
        ("json", "other"),
        ("application/", "other"),
        ("application/json/x", "other"),
        (",", "other"),
        ("application/json;q=1e0", "other"),
        ("application/json;q=abc", "other"),
    ];
    for (accept, expected) in table {
        assert_eq!(word(negotiate(accept)), expected, "{accept:?}");
    }
}

#[test]
fn an_absent_header_means_json() {
    assert_eq!(Negotiated::negotiate(None, None, None), Negotiated::Json);
    assert_eq!(Negotiated::of(&HeaderMap::new(), None), Negotiated::Json);
}

#[test]
fn browsers_get_indented_json_unless_the_parameter_differs() {
    let table = [
        (None, "curl/8.5.0", "pretty"),
        (None, "Wget/1.21", "pretty"),
        (None, "Mozilla/5.0 (X11)", "pretty"),
        (None, "Mozilla/4.0", "json"),
        (None, "kubectl/v1.32.4", "json"),
        (None, "my-curl", "json"),
        (Some(""), "curl/8.5.0", "pretty"),
        (Some("false"), "curl/8.5.0", "json"),
        (Some("0"), "curl/8.5.0", "json"),
        (Some("yes"), "curl/8.5.0", "json"),
        (Some("true"), "kubectl", "pretty"),
        (Some("True"), "kubectl", "pretty"),
        (Some("tRUE"), "kubectl", "json"),
        (Some("1"), "kubectl", "pretty"),
        (Some("t"), "kubectl", "pretty"),
    ];
    for (pretty, agent, expected) in table {
        let negotiated =
            Negotiated::negotiate(Some("application/json"), pretty, Some(agent.as_bytes()));
        assert_eq!(word(negotiated), expected, "{pretty:?} {agent}");
    }
    // Protobuf is never indented, but the JSON of a type without it is.
    let accept = "application/vnd.kubernetes.protobuf,application/json";
    let negotiated = Negotiated::negotiate(Some(accept), Some("true"), None);
    assert_eq!(negotiated, Negotiated::Protobuf { json: false });
}

#[test]
fn the_first_accept_line_counts() {
    let mut headers = HeaderMap::new();
    headers.append(header::ACCEPT, HeaderValue::from_static("application/json"));
    headers.append(header::ACCEPT, HeaderValue::from_static("application/yaml"));
    assert_eq!(Negotiated::of(&headers, None), Negotiated::Json);
    headers.insert(header::USER_AGENT, HeaderValue::from_static("curl/8"));
    assert_eq!(word(Negotiated::of(&headers, None)), "pretty");
    headers.insert(header::ACCEPT, HeaderValue::from_bytes(b"\xff").expect("a value"));
    assert_eq!(word(Negotiated::of(&headers, None)), "other");
}

#[test]
fn headers_with_too_many_clauses_for_a_stable_sort_are_forwarded() {
    let accept = |count: usize| vec!["application/json"; count].join(",");
    assert_eq!(word(negotiate(&accept(CLAUSES_MAX))), "json");
    assert_eq!(word(negotiate(&accept(CLAUSES_MAX + 1))), "other");
    assert_eq!(word(negotiate(&accept(100_000))), "other");
}

#[test]
fn only_the_bare_token_gzip_requests_compression() {
    let table: [(Option<&[u8]>, bool); 12] = [
        (None, false),
        (Some(b""), false),
        (Some(b"gzip"), true),
        (Some(b"gzip, deflate, br"), true),
        (Some(b"br,\tgzip ,zstd"), true),
        (Some(b"gzip;q=1.0"), false),
        (Some(b"gzip;q=0, gzip"), true),
        (Some(b"gzip, \xff"), true),
        (Some(b"GZIP"), false),
        (Some(b"*"), false),
        (Some(b"x-gzip"), false),
        (Some(b"identity"), false),
    ];
    for (line, expected) in table {
        let line = line.map(|line| HeaderValue::from_bytes(line).expect("a value"));
        let headers = line.into_iter().map(|line| (header::ACCEPT_ENCODING, line)).collect();
        assert_eq!(accepts_gzip(&headers), expected, "{headers:?}");
    }
}

proptest! {
    #[test]
    fn no_header_causes_a_panic(accept in "[a-z*/;,=q0-9. ]{0,60}|\\PC{0,60}") {
        negotiate(&accept);
    }
}
