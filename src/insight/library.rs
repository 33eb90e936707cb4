//! The client library, guessed from its requests. Pure.

use http::{HeaderMap, header};

/// A client library, or a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Library {
    /// fabric8's kubernetes-client, for the JVM.
    Fabric8,
    /// The official Java client.
    Java,
    /// client-go.
    ClientGo,
    /// controller-runtime, which builds on client-go.
    ControllerRuntime,
    /// kube-rs.
    KubeRs,
    /// The official Python client, or plain HTTP from Python.
    Python,
    /// The official JavaScript client, or plain HTTP from Node.
    JavaScript,
    /// kubectl.
    Kubectl,
    /// curl or wget, usually in a shell script.
    Curl,
    /// None of these.
    Unknown,
}

/// Lower-case words of User-Agent headers. The first match decides.
const WORDS: &[(&str, Library)] = &[
    ("fabric8", Library::Fabric8),
    ("okhttp/", Library::Fabric8),
    ("vert.x", Library::Fabric8),
    ("kubernetes java client", Library::Java),
    ("controller-runtime", Library::ControllerRuntime),
    ("kubectl/", Library::Kubectl),
    ("kube-rs", Library::KubeRs),
    ("kube-client", Library::KubeRs),
    ("kubernetes-client-javascript", Library::JavaScript),
    ("undici", Library::JavaScript),
    ("node-fetch", Library::JavaScript),
    ("axios/", Library::JavaScript),
    ("python", Library::Python),
    ("aiohttp", Library::Python),
    ("curl/", Library::Curl),
    ("wget/", Library::Curl),
    ("kubernetes/", Library::ClientGo),
    ("go-http-client", Library::ClientGo),
];

/// The usual name endings of binaries built on controller-runtime.
const MANAGERS: &[&str] = &["manager", "operator"];

// === impl Library ===

impl Library {
    /// Guesses the library of a request. `query` is the raw query of its URL, if any.
    pub fn of(headers: &HeaderMap, query: Option<&str>) -> Self {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let Some(user_agent) = text(header::USER_AGENT) else {
            return Self::of_nobody(headers, query);
        };
        let user_agent = user_agent.to_ascii_lowercase();
        let found = WORDS.iter().find(|(word, _)| user_agent.contains(word));
        match found.map_or(Self::Unknown, |(_, library)| *library) {
            Self::ClientGo if is_manager(&user_agent, text(header::ACCEPT)) => {
                Self::ControllerRuntime
            }
            library => library,
        }
    }

    /// Guesses the library of a request without a known user agent.
    fn of_nobody(headers: &HeaderMap, query: Option<&str>) -> Self {
        // kube-rs starts its queries with a parameter separator.
        if query.is_some_and(|query| query.is_empty() || query.starts_with('&')) {
            return Self::KubeRs;
        }
        // Vert.x, the default of fabric8, sends no optional header.
        let says = |name| headers.contains_key(name);
        if says(header::ACCEPT) || says(header::ACCEPT_ENCODING) {
            Self::Unknown
        } else {
            Self::Fabric8
        }
    }

    /// Returns the name in the report.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fabric8 => "fabric8",
            Self::Java => "java",
            Self::ClientGo => "client-go",
            Self::ControllerRuntime => "controller-runtime",
            Self::KubeRs => "kube-rs",
            Self::Python => "python",
            Self::JavaScript => "javascript",
            Self::Kubectl => "kubectl",
            Self::Curl => "curl",
            Self::Unknown => "unknown",
        }
    }
}

/// Reports whether a client-go user agent is controller-runtime: its typed client accepts protobuf
/// or anything, and its programs are usually named manager or operator.
fn is_manager(user_agent: &str, accept: Option<&str>) -> bool {
    let program = user_agent.split('/').next().unwrap_or_default();
    MANAGERS.iter().any(|suffix| program.ends_with(suffix))
        || accept == Some("application/vnd.kubernetes.protobuf, */*")
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn libraries_are_recognised_by_their_headers() {
        let cases = [
            ("fabric8-kubernetes-client/7.6.1", Library::Fabric8),
            ("okhttp/3.12.12", Library::Fabric8),
            ("Kubernetes Java Client/27.0.0", Library::Java),
            ("poller/v0.0.0 (linux/amd64) kubernetes/$Format", Library::ClientGo),
            ("manager/v1.2 (linux/amd64) kubernetes/abc", Library::ControllerRuntime),
            ("kubectl/v1.32.4 (linux/amd64) kubernetes/4cb5f07", Library::Kubectl),
            ("OpenAPI-Generator/37.0.2/python", Library::Python),
            ("python-requests/2.31", Library::Python),
            ("kubernetes-client-javascript/2.0.1", Library::JavaScript),
            ("node-fetch/1.0 (+https://github.com/bitinn/node-fetch)", Library::JavaScript),
            ("curl/8.5.0", Library::Curl),
            ("shop-backend/1.0", Library::Unknown),
        ];
        for (user_agent, library) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(header::USER_AGENT, HeaderValue::from_static(user_agent));
            assert_eq!(Library::of(&headers, None), library, "{user_agent}");
        }
    }

    #[test]
    fn some_libraries_are_recognised_by_their_queries() {
        let mut headers = HeaderMap::new();
        assert_eq!(Library::of(&headers, Some("&limit=500")), Library::KubeRs);
        assert_eq!(Library::of(&headers, Some("limit=500")), Library::Fabric8);
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        assert_eq!(Library::of(&headers, Some("limit=500")), Library::Unknown);
        assert_eq!(Library::of(&headers, None), Library::Unknown);
        let agent = HeaderValue::from_static("shop/v1 (linux/amd64) kubernetes/abc");
        headers.insert(header::USER_AGENT, agent);
        let accept = HeaderValue::from_static("application/vnd.kubernetes.protobuf, */*");
        headers.insert(header::ACCEPT, accept);
        assert_eq!(Library::of(&headers, None), Library::ControllerRuntime);
    }
}
