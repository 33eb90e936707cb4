//! URLs parsed like the apiserver does: path into target, query into parameters (S-URL-01..09).

use http::{Method, Uri};

use crate::api::Verb;

/// The destination of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// A resource of some group and version.
    Resource(Target),
    /// Any other path, decoded and without slashes at the ends.
    Other(String),
}

/// The resource part of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The API group. Empty for core.
    pub group: String,
    /// The API version.
    pub version: String,
    /// The plural resource name.
    pub resource: String,
    /// The namespace, also for a GET of a Namespace (S-URL-04).
    pub namespace: Option<String>,
    /// The object's name.
    pub name: Option<String>,
    /// The subresource.
    pub subresource: Option<String>,
    /// `true` if the deprecated `/watch/` prefix was used (S-URL-08).
    pub watch_prefix: bool,
}

/// Decoded query parameters in their order (S-URL-09).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters(Vec<(String, String)>);

// === impl Route ===

impl Route {
    /// Parses a path.
    pub fn parse(path: &str) -> Self {
        let decoded = percent_decode(path, Plus::Literal);
        // A path must start with a single slash to be a resource.
        if decoded.starts_with("//") {
            return Self::Other(decoded);
        }
        let trimmed = decoded.trim_matches('/');
        match Target::parse(trimmed) {
            Some(target) => Self::Resource(target),
            None => Self::Other(trimmed.to_owned()),
        }
    }
}

// === impl Target ===

impl Target {
    fn parse(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.split('/').collect();
        let (group, version, mut rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let watch_prefix = rest.first() == Some(&"watch");
        if watch_prefix {
            rest = &rest[1..];
        }
        let mut target = Self {
            group: group.to_owned(),
            version: version.to_owned(),
            watch_prefix,
            ..Self::default()
        };
        match rest {
            [] | [""] => return None,
            ["namespaces", namespace] => target.resource_parts(&rest[..2], Some(namespace)),
            ["namespaces", namespace, "status" | "finalize"] => {
                target.resource_parts(rest, Some(namespace));
            }
            ["namespaces", namespace, below @ ..] => target.resource_parts(below, Some(namespace)),
            _ => target.resource_parts(rest, None),
        }
        Some(target)
    }

    fn resource_parts(&mut self, parts: &[&str], namespace: Option<&str>) {
        let part = |index: usize| {
            parts.get(index).filter(|part| !part.is_empty()).map(|&part| part.to_owned())
        };
        self.namespace = namespace.filter(|name| !name.is_empty()).map(str::to_owned);
        self.resource = part(0).unwrap_or_default();
        self.name = part(1);
        self.subresource = (parts.len() > 2).then(|| parts[2..].join("/"));
    }

    /// Returns the verb of a request for this target (S-URL-03).
    pub fn verb(&self, method: &Method, parameters: &Parameters) -> Verb {
        let named = self.name.is_some();
        match *method {
            Method::POST => Verb::Create,
            Method::PUT => Verb::Update,
            Method::PATCH => Verb::Patch,
            Method::DELETE if named => Verb::Delete,
            Method::DELETE => Verb::DeleteCollection,
            Method::GET | Method::HEAD if self.watch_prefix => Verb::Watch,
            Method::GET | Method::HEAD if named => Verb::Get,
            Method::GET | Method::HEAD if parameters.flag("watch") == Some(true) => Verb::Watch,
            Method::GET | Method::HEAD => Verb::List,
            _ => Verb::Other,
        }
    }
}

// === impl Parameters ===

impl Parameters {
    /// Parses the query of a URL. Pairs with a semicolon or a bad escape are dropped, as in Go.
    pub fn parse(uri: &Uri) -> Self {
        let query = uri.query().unwrap_or_default();
        let pairs = query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';'));
        Self(
            pairs
                .filter(|pair| escapes_are_whole(pair))
                .map(|pair| {
                    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (percent_decode(key, Plus::Space), percent_decode(value, Plus::Space))
                })
                .collect(),
        )
    }

    /// Returns the first value of a parameter.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Returns a boolean as the apiserver parses it: all but `0` and `false` is true (S-URL-06).
    pub fn flag(&self, key: &str) -> Option<bool> {
        self.value(key).map(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Plus {
    Space,
    Literal,
}

fn escapes_are_whole(text: &str) -> bool {
    let hex = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    text.match_indices('%').all(|(index, _)| text.get(index + 1..index + 3).is_some_and(hex))
}

fn percent_decode(text: &str, plus: Plus) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while let Some(&byte) = bytes.get(index) {
        let escaped = (byte == b'%')
            .then(|| text.get(index + 1..index + 3))
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match escaped {
            Some(value) => {
                out.push(value);
                index += 3;
            }
            None => {
                out.push(if byte == b'+' && plus == Plus::Space { b' ' } else { byte });
                index += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &str) -> [String; 6] {
        let Route::Resource(found) = Route::parse(path) else { panic!("{path} is not a resource") };
        [
            found.group,
            found.version,
            found.resource,
            found.namespace.unwrap_or_default(),
            found.name.unwrap_or_default(),
            found.subresource.unwrap_or_default(),
        ]
    }

    #[test]
    fn paths_are_split_into_their_parts() {
        for (path, expected) in [
            ("/api/v1/pods", ["", "v1", "pods", "", "", ""]),
            ("/api/v1/pods/", ["", "v1", "pods", "", "", ""]),
            ("/api/v1/namespaces", ["", "v1", "namespaces", "", "", ""]),
            ("/api/v1/namespaces/a", ["", "v1", "namespaces", "a", "a", ""]),
            ("/api/v1/namespaces/a/status", ["", "v1", "namespaces", "a", "a", "status"]),
            ("/api/v1/namespaces/a/pods/p/log", ["", "v1", "pods", "a", "p", "log"]),
            ("/api/v1/namespaces/a/pods/p%2Flog", ["", "v1", "pods", "a", "p", "log"]),
            ("/apis/apps/v1/deployments", ["apps", "v1", "deployments", "", "", ""]),
            (
                "/apis/apps/v1/watch/namespaces/a/deployments/d",
                ["apps", "v1", "deployments", "a", "d", ""],
            ),
        ] {
            assert_eq!(target(path), expected, "{path}");
        }
        for path in ["/", "/api", "/api/v1", "/apis/apps", "/apis/apps/v1/", "/version"] {
            assert!(matches!(Route::parse(path), Route::Other(_)), "{path}");
        }
    }

    #[test]
    fn parameters_are_decoded_and_the_first_of_a_key_counts() {
        let uri: Uri = "/x?&a=1+2&a=3&b=%3D%20&c;d=1&e=%zz&f=%2&watch".parse().expect("a URI");
        let parameters = Parameters::parse(&uri);
        assert_eq!(parameters.value("a"), Some("1 2"));
        assert_eq!(parameters.value("b"), Some("= "));
        for dropped in ["c", "d", "e", "f"] {
            assert_eq!(parameters.value(dropped), None, "{dropped}");
        }
        assert_eq!(parameters.flag("watch"), Some(true));
    }
}
