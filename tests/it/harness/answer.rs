//! A response as a client receives it, read whole.

use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;

/// One response.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The HTTP status; zero when the connection ended instead.
    pub(crate) status: u16,
    /// The headers.
    pub(crate) headers: HeaderMap,
    /// The received part of the body.
    pub(crate) body: Bytes,
    /// `true` if the body is complete.
    pub(crate) whole: bool,
}

// === impl Answer ===

impl Answer {
    /// The connection ended before a response came.
    pub(super) fn none() -> Self {
        Self { status: 0, headers: HeaderMap::new(), body: Bytes::new(), whole: false }
    }

    /// A header's value, empty when absent.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("a text"))
    }

    /// The source of the response (RFC 9211).
    pub(crate) fn cache_status(&self) -> &str {
        self.header("cache-status")
    }

    /// Reports whether memory answered.
    pub(crate) fn is_hit(&self) -> bool {
        self.cache_status().starts_with("listless; hit;")
    }

    /// The level of a hit, or the reason of a forward.
    pub(crate) fn detail(&self) -> &str {
        self.cache_status().rsplit_once("detail=").map_or("", |(_, detail)| detail)
    }

    /// The body as text.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("UTF-8")
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    /// The resourceVersion in the metadata of the list or object.
    pub(crate) fn version(&self) -> u64 {
        let json = self.json();
        let version = json["metadata"]["resourceVersion"].as_str();
        version.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no version: {json}"))
    }

    /// `namespace/name` of a list's items.
    pub(crate) fn names(&self) -> Vec<String> {
        let json = self.json();
        let items = json["items"].as_array().unwrap_or_else(|| panic!("no list: {json}"));
        let part =
            |item: &Value, key: &str| item["metadata"][key].as_str().unwrap_or_default().to_owned();
        let name = |item| match part(item, "namespace") {
            cluster if cluster.is_empty() => part(item, "name"),
            namespace => format!("{namespace}/{}", part(item, "name")),
        };
        items.iter().map(name).collect()
    }

    /// Status, headers and body for a message.
    pub(crate) fn summary(&self) -> String {
        let body = String::from_utf8_lossy(&self.body[..self.body.len().min(300)]);
        format!("{} [{}] {body}", self.status, self.cache_status())
    }
}

/// Returns a list's bytes without its own resourceVersion; these must be equal in a quiet cluster.
pub(crate) fn without_version(list: &Answer) -> String {
    let version = format!("\"resourceVersion\":\"{}\"", list.version());
    let text = list.text();
    // The list's own version is before the items of a typed list, and after those of a custom one.
    let at = if text.starts_with("{\"kind\"") { text.find(&version) } else { text.rfind(&version) };
    let at = at.expect("the list's version");
    format!("{}{}", &text[..at], &text[at + version.len()..])
}
