//! Every Status, compared with the bytes of the apiserver's own constructors and encoder.

use super::*;

fn pods() -> GroupResource {
    GroupResource::new("", "pods")
}

fn deployments() -> GroupResource {
    GroupResource::new("apps", "deployments")
}

fn version(text: &str) -> ResourceVersion {
    ResourceVersion::parse(text).expect("a version")
}

#[test]
fn each_status_is_written_as_the_apiserver_writes_it() {
    let head = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#;
    let table = [
        (
            Status::not_found(&pods(), "x"),
            r##""message":"pods \"x\" not found","reason":"NotFound","details":{"name":"x","kind":"pods"},"code":404}"##,
        ),
        (
            Status::not_found(&deployments(), "a\"b\\<&>"),
            r##""message":"deployments.apps \"a\\\"b\\\\\u003c\u0026\u003e\" not found","reason":"NotFound","details":{"name":"a\"b\\\u003c\u0026\u003e","group":"apps","kind":"deployments"},"code":404}"##,
        ),
        (
            Status::service_unavailable("upstream is unreachable", None),
            r##""message":"upstream is unreachable","reason":"ServiceUnavailable","code":503}"##,
        ),
        (
            Status::too_many_requests("slow down", 3),
            r##""message":"slow down","reason":"TooManyRequests","details":{"retryAfterSeconds":3},"code":429}"##,
        ),
        (
            Status::timeout("took too long", 0),
            r##""message":"Timeout: took too long","reason":"Timeout","details":{},"code":504}"##,
        ),
        (
            Status::timeout("took too long", 5),
            r##""message":"Timeout: took too long","reason":"Timeout","details":{"retryAfterSeconds":5},"code":504}"##,
        ),
        (
            Status::bad_request("bad\n\t\u{1}\u{2028} é"),
            r##""message":"bad\n\t\u0001\u2028 é","reason":"BadRequest","code":400}"##,
        ),
        (
            Status::forbidden(&deployments(), Some("x"), "no"),
            r##""message":"deployments.apps \"x\" is forbidden: no","reason":"Forbidden","details":{"name":"x","group":"apps","kind":"deployments"},"code":403}"##,
        ),
        (
            Status::forbidden(&pods(), None, "no"),
            r##""message":"pods is forbidden: no","reason":"Forbidden","details":{"kind":"pods"},"code":403}"##,
        ),
        (
            Status::unauthorized(),
            r##""message":"Unauthorized","reason":"Unauthorized","code":401}"##,
        ),
        (
            Status::expired("too old resource version: 1 (2)"),
            r##""message":"too old resource version: 1 (2)","reason":"Expired","code":410}"##,
        ),
        (
            Status::internal_error("oops"),
            r##""message":"Internal error occurred: oops","reason":"InternalError","details":{"causes":[{"message":"oops"}]},"code":500}"##,
        ),
        (
            Status::too_large_resource_version(&version("5"), &version("3"), 1),
            r##""message":"Timeout: Too large resource version: 5, current: 3","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1},"code":504}"##,
        ),
        (
            Status::too_large_resource_version(&version("5"), &version("3"), 0),
            r##""message":"Timeout: Too large resource version: 5, current: 3","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}]},"code":504}"##,
        ),
    ];
    for (status, tail) in table {
        let body = status.to_body();
        let text = std::str::from_utf8(&body).expect("UTF-8");
        assert_eq!(text, format!("{head}{tail}\n"), "{status:?}");
        assert!(text.contains(&format!("\"code\":{}}}", status.code().as_u16())));
    }
}

#[test]
fn a_retry_is_suggested_only_by_some_statuses() {
    assert_eq!(Status::service_unavailable("gone", None).retry_after_seconds(), None);
    let unavailable = Status::service_unavailable("gone", Some(1));
    assert_eq!(unavailable.retry_after_seconds(), Some(1));
    assert_eq!((unavailable.reason(), unavailable.message()), ("ServiceUnavailable", "gone"));
    let body = unavailable.to_body();
    assert!(body.ends_with(b"\"details\":{\"retryAfterSeconds\":1},\"code\":503}\n"));
    assert_eq!(Status::timeout("x", 0).retry_after_seconds(), None);
}

#[test]
fn names_are_quoted_as_go_quotes_them() {
    assert_eq!(quote("a\"\\\n\r\t\u{0}\u{7f}é"), r#""a\"\\\n\r\t\x00\x7fé""#);
}
