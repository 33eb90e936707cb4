//! Every Status, compared with the bytes of the apiserver's own constructors and encoder.

use super::*;

fn pods() -> GroupResource {
    GroupResource::new("", "pods")
}

fn deployments() -> GroupResource {
    GroupResource::new("apps", "deployments")
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
            Status::expired("too old resource version: 1 (2)"),
            r##""message":"too old resource version: 1 (2)","reason":"Expired","code":410}"##,
        ),
    ];
    for (status, tail) in table {
        let body = status.to_body();
        let text = std::str::from_utf8(&body).expect("UTF-8");
        assert_eq!(text, format!("{head}{tail}\n"), "{status:?}");
    }
}

#[test]
fn names_are_quoted_as_go_quotes_them() {
    assert_eq!(quote("a\"\\\n\r\t\u{0}\u{7f}é"), r#""a\"\\\n\r\t\x00\x7fé""#);
}
