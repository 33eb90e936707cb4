//! The error of a watch whose version is gone, in each form. Pure.

use bytes::Bytes;

use super::form::event;
use crate::api::protobuf::wire::{field, put_bytes, put_number};

const MESSAGE: &str = "too old resource version: the apiserver's storage was restored";
const REASON: &str = "Expired";
const CODE: u16 = 410;

/// The empty strings of ListMeta: selfLink, resourceVersion and continue.
const METADATA: [u8; 6] = [0x0a, 0, 0x12, 0, 0x1a, 0];

/// The tag of `code` in Status.
const CODE_TAG: u8 = 6 << 3;

/// Returns the line of a watch in JSON.
pub(super) fn json_error() -> Bytes {
    let line = format!(
        r#"{{"type":"ERROR","object":{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"{MESSAGE}","reason":"{REASON}","code":{CODE}}}}}"#
    );
    Bytes::from(line + "\n")
}

/// Returns the frame of a watch in protobuf.
pub(super) fn protobuf_error() -> Bytes {
    let mut status = field(1, &METADATA);
    for (number, text) in [(2, "Failure"), (3, MESSAGE), (4, REASON)] {
        put_bytes(&mut status, number, text.as_bytes());
    }
    status.push(CODE_TAG);
    put_number(&mut status, CODE.into());
    event("ERROR", "v1", "Status", &status)
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
        assert!(text.contains("Status") && text.contains(MESSAGE) && text.contains(REASON));
        assert!(object.windows(3).any(|bytes| bytes == [CODE_TAG, 0x9a, 0x03]), "the code");
    }
}
