//! The error of a watch whose version is gone, in each form. Pure.

use bytes::Bytes;

use super::form::event;
use crate::api::status::Status;

const MESSAGE: &str = "too old resource version: the apiserver's storage was restored";

/// Returns the line of a watch in JSON.
pub(super) fn json_error() -> Bytes {
    let status = Status::expired(MESSAGE).to_json();
    [br#"{"type":"ERROR","object":"#, &*status, b"}\n"].concat().into()
}

/// Returns the frame of a watch in protobuf.
pub(super) fn protobuf_error() -> Bytes {
    event("ERROR", "v1", "Status", &Status::expired(MESSAGE).to_bare_protobuf())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::protobuf::wire::Fields;

    #[test]
    fn the_error_is_a_status_that_says_gone() {
        let line = json_error();
        assert_eq!(line.last(), Some(&b'\n'));
        let told: serde_json::Value = serde_json::from_slice(&line).expect("JSON");
        assert_eq!((&told["type"], &told["object"]["code"]), (&"ERROR".into(), &410.into()));
        assert_eq!(told["object"]["reason"], "Expired");
    }

    #[test]
    fn the_error_in_protobuf_has_the_same_fields() {
        let frame = protobuf_error();
        let fields: Vec<_> = Fields::of(&frame[4..]).map(|it| it.expect("well formed")).collect();
        assert_eq!(fields[0].text(), Ok("ERROR"));
        let object = fields[1].bytes().expect("an object");
        let text = String::from_utf8_lossy(object);
        assert!(text.contains("Status") && text.contains(MESSAGE) && text.contains("Expired"));
        assert!(object.windows(3).any(|bytes| bytes == [6 << 3, 0x9a, 0x03]), "the code");
    }
}
