//! The parts of a described request as people write them: a method and headers.

use http::{HeaderMap, HeaderName, HeaderValue, Method};

/// A word that is not an HTTP method.
#[derive(Debug, thiserror::Error)]
#[error("{word:?} is not an HTTP method; use {instead}")]
pub struct BadMethod {
    word: String,
    instead: &'static str,
}

/// A header that is not of the form `NAME: VALUE`.
#[derive(Debug, thiserror::Error)]
#[error("{0:?}: write the header as NAME: VALUE")]
pub struct BadHeader(String);

/// Parses an HTTP method in any case. Kubernetes verbs are not methods.
pub fn method(word: &str) -> Result<Method, BadMethod> {
    const METHODS: [Method; 9] = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::OPTIONS,
        Method::CONNECT,
        Method::TRACE,
    ];
    let known = METHODS.into_iter().find(|method| method.as_str().eq_ignore_ascii_case(word));
    known.ok_or_else(|| {
        let instead = match word.to_ascii_lowercase().as_str() {
            "list" => "GET with the path of the collection",
            "watch" => "GET with watch=1 in the query",
            "create" => "POST with the path of the collection",
            "update" | "replace" => "PUT with the path of the object",
            "apply" => "PATCH with the path of the object",
            "deletecollection" => "DELETE with the path of the collection",
            _ => "GET, HEAD, POST, PUT, PATCH or DELETE",
        };
        BadMethod { word: word.to_owned(), instead }
    })
}

/// Parses headers of the form used on a command line.
pub fn headers<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<HeaderMap, BadHeader> {
    let mut headers = HeaderMap::new();
    for text in texts {
        let refused = || BadHeader(text.to_owned());
        let (name, value) = text.split_once(':').ok_or_else(refused)?;
        let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| refused())?;
        let value = HeaderValue::from_str(value.trim()).map_err(|_| refused())?;
        headers.append(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verb_is_refused_and_its_method_is_named() {
        assert_eq!(method("get").expect("a method"), Method::GET);
        assert_eq!(method("DELETE").expect("a method"), Method::DELETE);
        for (word, instead) in [
            ("LIST", "GET with the path of the collection"),
            ("watch", "GET with watch=1 in the query"),
            ("Create", "POST with the path of the collection"),
            ("nonsense", "GET, HEAD, POST, PUT, PATCH or DELETE"),
        ] {
            let told = method(word).expect_err("no method").to_string();
            assert_eq!(told, format!("{word:?} is not an HTTP method; use {instead}"));
        }
    }
}
