//! The URL grammar and the tables of options, row by row.

use http::HeaderValue;
use proptest::prelude::*;

use super::*;
use crate::api::selector::{FieldSelector, LabelSelector};

fn parse(method: &str, uri: &str) -> RequestInfo {
    let method = Method::from_bytes(method.as_bytes()).expect("a method");
    RequestInfo::parse(&method, &uri.parse().expect("a URI"), &HeaderMap::new())
}

fn resource(method: &str, uri: &str) -> ResourceRequest {
    match parse(method, uri) {
        RequestInfo::Resource(request) => request,
        RequestInfo::NonResource(_) => panic!("{method} {uri} addresses no resource"),
    }
}

fn read(uri: &str) -> Read {
    let read = resource("GET", uri).read;
    read.unwrap_or_else(|reason| panic!("{uri}: {}", reason.as_str()))
}

fn refusal(uri: &str) -> NotModelled {
    resource("GET", uri).read.expect_err(uri)
}

fn version(text: &str) -> crate::api::version::ResourceVersion {
    crate::api::version::ResourceVersion::parse(text).expect("a version")
}

/// Returns `verb resource scope name subresource`, with `-` for an absent part.
fn summary(request: &ResourceRequest) -> String {
    let scope = request.scope.namespace().unwrap_or("-");
    let name = request.name.as_deref().unwrap_or("-");
    let subresource = request.subresource.as_deref().unwrap_or("-");
    format!("{} {} {scope} {name} {subresource}", request.verb.as_str(), request.resource)
}

#[test]
fn urls_are_parsed_as_the_apiserver_parses_them() {
    let table = [
        ("GET", "/api/v1/pods", "list pods.v1 - - -"),
        ("GET", "/api/v1/namespaces/shop/pods", "list pods.v1 shop - -"),
        ("GET", "/api/v1/namespaces/shop/pods/a", "get pods.v1 shop a -"),
        ("GET", "/api/v1/namespaces/shop/pods/a/log", "get pods.v1 shop a log"),
        ("GET", "/api/v1/namespaces/shop/pods/a/proxy/x/y", "get pods.v1 shop a proxy"),
        ("GET", "/api/v1/nodes/n", "get nodes.v1 - n -"),
        ("GET", "/api/v1/namespaces", "list namespaces.v1 - - -"),
        ("GET", "/api/v1/namespaces/shop", "get namespaces.v1 shop shop -"),
        ("GET", "/api/v1/namespaces/shop/status", "get namespaces.v1 shop shop status"),
        ("PUT", "/api/v1/namespaces/shop/finalize", "update namespaces.v1 shop shop finalize"),
        ("GET", "/api/v1/namespaces/status/pods", "list pods.v1 status - -"),
        ("GET", "/apis/apps/v1/deployments", "list deployments.v1.apps - - -"),
        ("GET", "/apis/g.io/v2/namespaces/n/r/x/s", "get r.v2.g.io n x s"),
        ("POST", "/api/v1/namespaces/shop/pods", "create pods.v1 shop - -"),
        ("POST", "/api/v1/namespaces/n/pods/a/eviction", "create pods.v1 n a eviction"),
        ("PUT", "/api/v1/namespaces/n/pods/a", "update pods.v1 n a -"),
        ("PATCH", "/api/v1/namespaces/n/pods/a/status", "patch pods.v1 n a status"),
        ("DELETE", "/api/v1/namespaces/n/pods/a", "delete pods.v1 n a -"),
        ("DELETE", "/api/v1/namespaces/n/pods", "deletecollection pods.v1 n - -"),
        ("HEAD", "/api/v1/pods", "list pods.v1 - - -"),
        ("HEAD", "/api/v1/namespaces/n/pods/a", "get pods.v1 n a -"),
        ("OPTIONS", "/api/v1/pods", "other pods.v1 - - -"),
        ("GET", "/api/v1/watch/pods", "watch pods.v1 - - -"),
        ("GET", "/api/v1/watch/namespaces/n/pods/a", "watch pods.v1 n a -"),
        ("GET", "/apis/apps/v1/watch/deployments", "watch deployments.v1.apps - - -"),
        ("GET", "/api/v1/proxy/namespaces/n/pods/a/b", "other pods.v1 n a -"),
        ("GET", "/api/v1/pods/", "list pods.v1 - - -"),
        ("GET", "//api/v1/pods//", "list pods.v1 - - -"),
        ("GET", "/api/v1/namespaces//pods", "list pods.v1 - - -"),
        ("GET", "/api/v1/namespaces/n/pods/a%2Flog", "get pods.v1 n a log"),
        ("PUT", "/apis/g/v1/roles/system%3Anode", "update roles.v1.g - system:node -"),
    ];
    for (method, uri, expected) in table {
        assert_eq!(summary(&resource(method, uri)), expected, "{method} {uri}");
    }
}

#[test]
fn other_paths_address_no_resource() {
    let table = [
        "/",
        "/api",
        "/api/v1",
        "/api/v1/",
        "/apis",
        "/apis/apps",
        "/apis/apps/v1",
        "/healthz",
        "/version",
        "/openapi/v3/apis/apps/v1",
        "/api/v1/watch",
        "/apis/a/b/proxy",
        "/apix/v1/pods",
        "/API/v1/pods",
        "/api/v1/pods/%zz",
        "/api/v1/pods%",
        "/api/v1/pods%2",
        "*",
    ];
    for uri in table {
        let expected = RequestInfo::NonResource(NonResourceRequest { path: uri.into() });
        assert_eq!(parse("GET", uri), expected, "{uri}");
    }
    assert_eq!(parse("CONNECT", "host:443").verb(), Verb::Other);
    assert_eq!(parse("GET", "/version").scope_label(), "");
}

#[test]
fn an_oversized_name_is_rejected() {
    for (length, understood) in [(253, true), (254, false), (60_000, false)] {
        let long = "x".repeat(length);
        for uri in [
            format!("/api/v1/namespaces/{long}/pods"),
            format!("/api/v1/namespaces/a/pods/{long}"),
            format!("/apis/{long}/v1/things"),
        ] {
            let parsed = parse("GET", &uri);
            let read = parsed.resource_request().map(|request| request.read.is_ok());
            assert_eq!(read, Some(understood), "{length}");
        }
    }
}

#[test]
fn the_watch_parameter_makes_a_list_a_watch() {
    let table = [
        ("watch=1", Verb::Watch),
        ("watch=true", Verb::Watch),
        ("watch", Verb::Watch),
        ("watch=", Verb::Watch),
        ("watch=no", Verb::Watch),
        ("?&watch=true", Verb::Watch),
        ("&watch=true", Verb::Watch),
        ("watch=0", Verb::List),
        ("watch=FALSE", Verb::List),
        ("watch=false&watch=true", Verb::List),
        ("watch=true&watch=false", Verb::Watch),
        ("watch=tr%75e", Verb::Watch),
        ("watch=%zz", Verb::List),
        ("watch=a;b", Verb::List),
        ("Watch=1", Verb::List),
    ];
    for (query, expected) in table {
        assert_eq!(parse("GET", &format!("/api/v1/pods?{query}")).verb(), expected, "{query}");
    }
    assert_eq!(refusal("/api/v1/pods?watch=1&foo=bar"), NotModelled::UnknownParameter);
    assert_eq!(refusal("/api/v1/watch/pods"), NotModelled::UnusualPath);
    assert_eq!(parse("GET", "/api/v1/nodes/n?watch=1").verb(), Verb::Get);
}

#[test]
fn list_versions_follow_the_published_table() {
    use VersionMatch::{Any, Exact, MostRecent, NotOlderThan};
    let n = || version("7");
    let table = [
        ("", Ok(MostRecent)),
        ("limit=500", Ok(MostRecent)),
        ("resourceVersion=", Ok(MostRecent)),
        ("resourceVersion=&resourceVersionMatch=&continue=", Ok(MostRecent)),
        ("resourceVersion=0", Ok(Any)),
        ("resourceVersion=0&limit=5", Ok(Any)),
        ("resourceVersion=0&resourceVersionMatch=NotOlderThan", Ok(Any)),
        ("resourceVersion=7", Ok(NotOlderThan(n()))),
        ("resourceVersion=7&limit=0", Ok(NotOlderThan(n()))),
        ("resourceVersion=7&limit=-1", Ok(NotOlderThan(n()))),
        ("resourceVersion=7&limit=1", Ok(Exact(n()))),
        ("resourceVersion=7&resourceVersionMatch=Exact", Ok(Exact(n()))),
        ("resourceVersion=7&resourceVersionMatch=NotOlderThan", Ok(NotOlderThan(n()))),
        ("resourceVersion=7&resourceVersionMatch=NotOlderThan&limit=1", Ok(NotOlderThan(n()))),
        ("resourceVersionMatch=Exact", Err(NotModelled::IllegalCombination)),
        ("resourceVersionMatch=NotOlderThan", Err(NotModelled::IllegalCombination)),
        ("resourceVersion=0&resourceVersionMatch=Exact", Err(NotModelled::IllegalCombination)),
        ("resourceVersion=7&resourceVersionMatch=exact", Err(NotModelled::IllegalCombination)),
        ("sendInitialEvents=false", Err(NotModelled::IllegalCombination)),
        ("continue=abc", Err(NotModelled::Continue)),
        ("continue=abc&resourceVersionMatch=Exact", Err(NotModelled::Continue)),
        ("resourceVersion=007", Err(NotModelled::BadVersion)),
        ("resourceVersion=-1", Err(NotModelled::BadVersion)),
        ("resourceVersion=18446744073709551616", Err(NotModelled::BadVersion)),
        ("resourceVersion=x&limit=1", Err(NotModelled::BadVersion)),
        ("limit=x", Err(NotModelled::BadValue)),
        ("limit=", Err(NotModelled::BadValue)),
        ("timeoutSeconds=1.5", Err(NotModelled::BadValue)),
        ("timeoutSeconds=30", Ok(MostRecent)),
        ("timeout=x", Err(NotModelled::BadValue)),
        ("includeObject=Object", Ok(MostRecent)),
        ("includeObject=object", Err(NotModelled::BadValue)),
        ("allowWatchBookmarks=true&pretty=&watch=0", Ok(MostRecent)),
        ("foo=", Err(NotModelled::UnknownParameter)),
        ("prett%79=false", Err(NotModelled::UnknownParameter)),
        ("shardSelector=x", Err(NotModelled::UnknownParameter)),
        ("=", Err(NotModelled::UnknownParameter)),
        ("dryRun=All", Err(NotModelled::UnknownParameter)),
        ("limit=1&limit=1", Err(NotModelled::RepeatedParameter)),
        ("labelSelector=a;b", Err(NotModelled::MalformedQuery)),
        ("labelSelector=%", Err(NotModelled::MalformedQuery)),
        ("labelSelector=%ff", Err(NotModelled::MalformedQuery)),
        ("labelSelector=a%20b", Err(NotModelled::BadSelector)),
        ("fieldSelector=a", Err(NotModelled::BadSelector)),
        ("fieldSelector=spec.color%3Dred", Err(NotModelled::UnmodelledField)),
        ("fieldSelector=metadata.name%3Da,metadata.name%3Db", Err(NotModelled::IllegalCombination)),
    ];
    for (query, expected) in table {
        let request = resource("GET", &format!("/api/v1/pods?{query}"));
        assert_eq!(request.read.map(|read| read.version), expected, "{query:?}");
    }
}

#[test]
fn get_versions_follow_the_published_table() {
    use VersionMatch::{Any, MostRecent, NotOlderThan};
    let table = [
        ("", Ok(MostRecent)),
        ("resourceVersion=", Ok(MostRecent)),
        ("resourceVersion=0", Ok(Any)),
        ("resourceVersion=7&pretty=false&timeout=5s", Ok(NotOlderThan(version("7")))),
        ("includeObject=None", Ok(MostRecent)),
        ("resourceVersion=07", Err(NotModelled::BadVersion)),
        ("resourceVersionMatch=Exact", Err(NotModelled::UnknownParameter)),
        ("watch=1", Err(NotModelled::UnknownParameter)),
        ("labelSelector=a", Err(NotModelled::UnknownParameter)),
        ("export=true", Err(NotModelled::UnknownParameter)),
    ];
    for (query, expected) in table {
        let request = resource("GET", &format!("/api/v1/namespaces/n/pods/a?{query}"));
        assert_eq!(request.read.map(|read| read.version), expected, "{query:?}");
    }
}

#[test]
fn a_get_is_a_query_pinned_by_name() {
    let get = read("/api/v1/namespaces/n/pods/a?pretty=true");
    assert_eq!(get.name.as_deref(), Some("a"));
    assert_eq!(get.query.scope, Scope::Namespace("n".into()));
    assert_eq!(get.query.fields, FieldSelector::name("a"));
    assert_eq!(get.query.labels, LabelSelector::everything());
    assert_eq!((get.limit, get.pretty.as_deref()), (None, Some("true")));
    assert_eq!(get.review_name(), Some("a"));
}

#[test]
fn a_namespace_is_stored_outside_of_namespaces() {
    let request = resource("GET", "/api/v1/namespaces/shop");
    assert_eq!(request.scope, Scope::Namespace("shop".into()));
    assert_eq!(request.object_key().expect("a key").as_str(), "shop");
    assert_eq!(read("/api/v1/namespaces/shop").query.scope, Scope::All);
    assert_eq!(refusal("/api/v1/namespaces/shop/namespaces"), NotModelled::UnusualPath);
    assert_eq!(refusal("/api/v1/namespaces/shop/namespaces/a"), NotModelled::UnusualPath);
    let pod = resource("GET", "/api/v1/namespaces/shop/pods/a");
    assert_eq!(pod.object_key().expect("a key").as_str(), "shop/a");
    assert_eq!(resource("GET", "/api/v1/pods").object_key(), None);
}

#[test]
fn selectors_are_decoded_and_canonical() {
    let list = read(
        "/api/v1/namespaces/n/pods?&limit=500\
         &labelSelector=b+in+%282%2C1%29%2Ca%3D%3D1&fieldSelector=spec.host%3Dx",
    );
    assert_eq!(list.query.labels.to_string(), "a=1,b in (1,2)");
    assert_eq!(list.query.fields.to_string(), "spec.nodeName=x");
    assert_eq!((list.name, list.limit), (None, Some(500)));
    assert!(read("/api/v1/pods?labelSelector=&fieldSelector=").query.selects_all());
}

#[test]
fn a_list_that_pins_a_name_is_a_list_and_reviewed_by_that_name() {
    let pinned = |name: &str| {
        read(&format!("/api/v1/namespaces/n/pods?fieldSelector=metadata.name%3D{name}"))
    };
    assert_eq!(pinned("a").name, None);
    assert_eq!(pinned("a").review_name(), Some("a"));
    for name in ["..", ".", "a%2Fb", "a%25b"] {
        assert_eq!(pinned(name).review_name(), None, "{name}");
    }
    assert_eq!(read("/api/v1/pods?fieldSelector=metadata.name!%3Da").review_name(), None);
}

#[test]
fn unusual_paths_are_forwarded() {
    let table = [
        "/api/v1/pods/",
        "//api/v1/pods",
        "/api//v1/pods",
        "/api/v1/namespaces//pods",
        "/api/v1/namespaces/n/pods/a%2Db",
        "/api/v1/namespaces/n/pods/..",
        "/api/v1/nodes/.",
        "/api/v1/namespaces/n/pods/a%2Flog",
        "/api/v1/nodes/%C3%A4",
        "/api/v1/nodes/%ff",
        "/api/v1/proxy/nodes/a",
    ];
    for uri in table {
        assert_eq!(refusal(uri), NotModelled::UnusualPath, "{uri}");
        assert!(!resource("GET", uri).rewritable, "{uri}");
    }
}

#[test]
fn only_a_plain_get_is_a_read() {
    for method in ["HEAD", "POST", "DELETE", "get"] {
        let request = resource(method, "/api/v1/pods");
        assert_eq!(request.read, Err(NotModelled::NotARead), "{method}");
        assert!(!request.rewritable, "{method}");
    }
    assert_eq!(refusal("/api/v1/namespaces/n/pods/a/status"), NotModelled::Subresource);
    let with = |name: header::HeaderName, value: &'static str| {
        let headers = HeaderMap::from_iter([(name, HeaderValue::from_static(value))]);
        let uri = Uri::from_static("/api/v1/pods");
        match RequestInfo::parse(&Method::GET, &uri, &headers) {
            RequestInfo::Resource(request) => request.read.map(|_| ()),
            RequestInfo::NonResource(_) => panic!("addresses no resource"),
        }
    };
    assert_eq!(with(header::CONTENT_LENGTH, "0"), Ok(()));
    assert_eq!(with(header::CONTENT_LENGTH, "2"), Err(NotModelled::Body));
    assert_eq!(with(header::TRANSFER_ENCODING, "chunked"), Err(NotModelled::Body));
}

#[test]
fn reads_of_a_web_page_are_forwarded() {
    let origin = (header::ORIGIN, HeaderValue::from_static("https://page.example"));
    let mut headers = HeaderMap::from_iter([origin]);
    let uri = Uri::from_static("/api/v1/pods");
    let read = |headers: &HeaderMap| match RequestInfo::parse(&Method::GET, &uri, headers) {
        RequestInfo::Resource(request) => request.read.map(|_| ()),
        RequestInfo::NonResource(_) => panic!("addresses no resource"),
    };
    assert_eq!(read(&headers), Err(NotModelled::CrossOrigin));
    // Of these, only a watch is answered without the headers that a page needs.
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    assert_eq!(read(&headers), Err(NotModelled::CrossOrigin));
    let uri = Uri::from_static("/api/v1/pods?watch=true");
    let RequestInfo::Resource(request) = RequestInfo::parse(&Method::GET, &uri, &headers) else {
        panic!("addresses no resource")
    };
    assert!(request.watch.is_some());
}

#[test]
fn a_version_may_be_added_only_if_it_just_relaxes_freshness() {
    let table = [
        ("/api/v1/pods", true),
        ("/api/v1/pods?labelSelector=a&fieldSelector=x%3Dy&timeoutSeconds=1&timeout=1s", true),
        ("/api/v1/pods?allowWatchBookmarks=true&pretty=1&includeObject=None", true),
        ("/api/v1/namespaces/n/pods/a?pretty=1&timeout=1s", true),
        ("/api/v1/namespaces/n/pods/a?labelSelector=a", false),
        ("/api/v1/namespaces/n/pods/a/status", false),
        ("/api/v1/pods?resourceVersion=", false),
        ("/api/v1/pods?resourceVersion=0", false),
        ("/api/v1/pods?resourceVersionMatch=Exact", false),
        ("/api/v1/pods?continue=", false),
        ("/api/v1/pods?limit=500", false),
        ("/api/v1/pods?watch=0", false),
        ("/api/v1/pods?watch=1", false),
        ("/api/v1/pods?sendInitialEvents=false", false),
        ("/api/v1/pods?foo=bar", false),
        ("/api/v1/pods?labelSelector=a&labelSelector=b", false),
        ("/api/v1/pods?labelSelector=%", false),
    ];
    for (uri, expected) in table {
        assert_eq!(resource("GET", uri).rewritable, expected, "{uri}");
    }
}

#[test]
fn the_shorter_timeout_of_a_list_counts() {
    for (query, seconds) in [
        ("timeout=7s&timeoutSeconds=5", Some(5)),
        ("timeout=3s&timeoutSeconds=5", Some(3)),
        ("timeoutSeconds=5", Some(5)),
        ("timeoutSeconds=0", None),
        ("timeoutSeconds=-1&timeout=2s", Some(2)),
        ("timeoutSeconds=5&watch=1", None),
    ] {
        let request = resource("GET", &format!("/api/v1/pods?{query}"));
        assert_eq!(request.timeout, seconds.map(Duration::from_secs), "{query}");
    }
}

#[test]
fn timeouts_are_go_durations() {
    let table = [
        ("10s", Some(10_000)),
        ("1m30s", Some(90_000)),
        ("1.5h", Some(5_400_000)),
        (".5s", Some(500)),
        ("1.s", Some(1_000)),
        ("7m45s", Some(465_000)),
        ("%2B2s", Some(2_000)),
        ("300ms", Some(300)),
        ("2000%C2%B5s", Some(2)),
        ("2000%CE%BCs", Some(2)),
        ("0", None),
        ("0s", None),
        ("-1s", None),
        ("", None),
        ("2562047h", Some(2_562_047 * 3_600_000)),
    ];
    for (text, expected) in table {
        let request = resource("GET", &format!("/api/v1/pods?timeout={text}"));
        assert_eq!(request.timeout, expected.map(Duration::from_millis), "{text}");
        assert!(request.read.is_ok(), "{text}");
    }
    for text in ["1", "s", "1d", "1S", ".s", "1s1", "1.5.s", "--1s", "2562048h", "1e3s", "00"] {
        let request = resource("GET", &format!("/api/v1/pods?timeout={text}"));
        assert_eq!((request.timeout, request.read), (None, Err(NotModelled::BadValue)), "{text}");
    }
}

#[test]
fn a_dry_run_is_detected_as_the_apiserver_does() {
    let dry = |query: &str| resource("POST", &format!("/api/v1/pods?{query}")).dry_run;
    assert!(dry("dryRun=All"));
    assert!(dry("fieldManager=x&dryRun"));
    assert!(dry("dry%52un=All"));
    assert!(!dry("fieldManager=x"));
    // Go drops a pair with a semicolon, and the write is real.
    assert!(!dry("dryRun=All;x"));
}

#[test]
fn metric_labels_are_those_of_the_apiserver() {
    let label = |method: &str, uri: &str| parse(method, uri).scope_label();
    assert_eq!(label("GET", "/api/v1/pods"), "cluster");
    assert_eq!(label("GET", "/api/v1/namespaces/n/pods"), "namespace");
    assert_eq!(label("GET", "/api/v1/namespaces/n/pods/a"), "resource");
    assert_eq!(label("POST", "/api/v1/namespaces/n/pods"), "resource");
}

#[test]
fn ten_thousand_parameters_are_parsed_in_linear_time() {
    let many = |pair: &str, count: usize| format!("/api/v1/pods?{}", vec![pair; count].join("&"));
    assert_eq!(refusal(&many("a=b", 1_000)), NotModelled::UnknownParameter);
    assert_eq!(refusal(&many("limit=1", 1_000)), NotModelled::RepeatedParameter);
    assert_eq!(refusal(&many("a=b", 10_000)), NotModelled::MalformedQuery);
    assert_eq!(refusal(&many("%=1", 10_000)), NotModelled::MalformedQuery);
    let deep = format!("/api/v1/pods/{}", "/".repeat(60_000));
    assert_eq!(refusal(&deep), NotModelled::UnusualPath);
}

proptest! {
    #[test]
    fn no_url_causes_a_panic(
        method in "GET|HEAD|POST|X",
        path in "(/(apis?|v1|watch|proxy|namespaces|pods|%2[Ff]|%|\\.\\.|[a-z%]{0,4})){0,8}/?",
        query in "((limit|watch|timeout|resourceVersion|labelSelector|fieldSelector|continue|x)\
                  =?([0-9a-z=%+;!,().]{0,6})&?){0,5}",
    ) {
        if let Ok(uri) = format!("{path}?{query}").parse() {
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            let info = RequestInfo::parse(&method, &uri, &HeaderMap::new());
            if let RequestInfo::Resource(ResourceRequest { read: Ok(read), verb, .. }) = info {
                prop_assert_eq!(&method, &Method::GET);
                let expected = if read.name.is_some() { Verb::Get } else { Verb::List };
                prop_assert_eq!(verb, expected);
            }
        }
    }

    #[test]
    fn any_bytes_in_the_url_are_parsed_or_rejected(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        if let Ok(uri) = Uri::try_from([b"/api/v1/pods?".as_slice(), &bytes].concat()) {
            RequestInfo::parse(&Method::GET, &uri, &HeaderMap::new());
        }
    }
}
