//! Continue tokens in the apiserver's format (S-LIST-50).

use base64::{DecodeError, Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

use super::status::StatusFailure;

/// The position and version at which a chunked list continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContinueToken {
    /// The version of the pages. `None` for the current one (the inconsistent token).
    pub revision: Option<u64>,
    /// The key of the last sent object. The next page starts above it.
    pub after: String,
    /// The source of the page: tokens of the cache have one more slash.
    pub cut_by: CutBy,
}

/// The source of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CutBy {
    /// The watch cache.
    Cache,
    /// etcd.
    Etcd,
}

#[derive(Serialize, Deserialize)]
struct Encoded {
    v: String,
    rv: i64,
    start: String,
}

// === impl ContinueToken ===

impl ContinueToken {
    /// Encodes the token. `after` is relative to the list's prefix.
    pub(super) fn encode(&self) -> String {
        let encoded = Encoded {
            v: "meta.k8s.io/v1".to_owned(),
            rv: self.revision.and_then(|revision| i64::try_from(revision).ok()).unwrap_or(-1),
            start: match self.cut_by {
                CutBy::Cache => format!("/{}\0", self.after),
                CutBy::Etcd => format!("{}\0", self.after),
            },
        };
        // A struct of two strings and a number always serializes.
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&encoded).unwrap_or_default())
    }

    /// Decodes a token of a client.
    pub(super) fn decode(token: &str) -> Result<Self, StatusFailure> {
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|error| {
            let offset = match error {
                DecodeError::InvalidByte(offset, _) => offset,
                _ => 0,
            };
            refused(&format!("illegal base64 data at input byte {offset}"))
        })?;
        let encoded: Encoded =
            serde_json::from_slice(&bytes).map_err(|error| refused(&error.to_string()))?;
        if encoded.v != "meta.k8s.io/v1" {
            return Err(refused(&format!(
                "server does not recognize this encoded version {:?}",
                encoded.v
            )));
        }
        let revision = match encoded.rv {
            0 => {
                return Err(refused(
                    "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
                ));
            }
            negative if negative < 0 => None,
            positive => Some(positive.unsigned_abs()),
        };
        let (cut_by, start) = match encoded.start.strip_prefix('/') {
            Some(start) => (CutBy::Cache, start),
            None => (CutBy::Etcd, encoded.start.as_str()),
        };
        if start.is_empty() {
            return Err(refused("encoded start key empty (version meta.k8s.io/v1)"));
        }
        if start.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(refused(start));
        }
        let after = start.strip_suffix('\0').unwrap_or(start).to_owned();
        Ok(Self { revision, after, cut_by })
    }
}

fn refused(why: &str) -> StatusFailure {
    StatusFailure::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_have_the_apiservers_format() {
        let after = "default/foo".to_owned();
        let token = ContinueToken { revision: Some(123), after, cut_by: CutBy::Etcd };
        let expected =
            "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MTIzLCJzdGFydCI6ImRlZmF1bHQvZm9vXHUwMDAwIn0";
        assert_eq!(token.encode(), expected);
        assert_eq!(ContinueToken::decode(expected), Ok(token.clone()));
        let cached = ContinueToken { cut_by: CutBy::Cache, ..token };
        assert_eq!(ContinueToken::decode(&cached.encode()), Ok(cached));
    }

    #[test]
    fn invalid_tokens_are_refused() {
        let unclean =
            ContinueToken { revision: Some(1), after: "../x".to_owned(), cut_by: CutBy::Etcd }
                .encode();
        for token in ["%%%", "aGVsbG8", &unclean] {
            let failure = ContinueToken::decode(token).expect_err("garbage");
            assert_eq!(failure.code(), 400, "{token}");
        }
    }
}
