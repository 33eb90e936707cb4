//! The three files of the page. They are compiled in and load nothing from other hosts.

use http::{
    HeaderValue, Response,
    header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_FRAME_OPTIONS},
};

use crate::body::Body;

/// One file of the page.
struct Asset {
    path: &'static str,
    content_type: &'static str,
    text: &'static str,
}

const ASSETS: &[Asset] = &[
    Asset {
        path: "/",
        content_type: "text/html; charset=utf-8",
        text: include_str!("page/page.html"),
    },
    Asset {
        path: "/page.css",
        content_type: "text/css; charset=utf-8",
        text: include_str!("page/page.css"),
    },
    Asset {
        path: "/page.js",
        content_type: "text/javascript; charset=utf-8",
        text: include_str!("page/page.js"),
    },
    Asset { path: "/page.svg", content_type: "image/svg+xml", text: include_str!("page/page.svg") },
];

/// The content security policy: only these files and this address's data; no inline script or
/// style.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Returns the page's file at a path.
pub(super) fn find(path: &str) -> Option<Response<Body>> {
    let asset = ASSETS.iter().find(|asset| asset.path == path)?;
    let mut response = Response::new(Body::full(asset.text));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(asset.content_type));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    Some(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_loads_nothing_from_elsewhere_and_has_nothing_inline() {
        let page = ASSETS[0].text;
        for word in ["http:", "https:", "//", "<style", "style=", "onclick", "javascript:"] {
            assert!(!page.contains(word), "{word}");
        }
        let scripts: Vec<_> = page.match_indices("<script").collect();
        assert_eq!(scripts.len(), 1);
        assert!(page.contains(r#"<script src="page.js" defer></script>"#));
        assert!(!ASSETS[1].text.contains("url(") && !ASSETS[1].text.contains("@import"));
    }

    #[test]
    fn data_becomes_text_and_never_markup() {
        let script = ASSETS[2].text;
        for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(!script.contains(word), "{word}");
        }
    }
}
