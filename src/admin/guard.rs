//! Whom a browser believes it talks to: no other site may read the admin address through it.
//!
//! A name that an attacker owns can be made to lead to this machine (DNS rebinding), so only addresses,
//! localhost and names the operator gave are answered. What has no names in it stays open: health and
//! metrics, which are scraped under any name.

use std::net::IpAddr;

use http::{HeaderMap, Request, header::HOST};

/// Whether the answer may be read under the name that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It may.
    Welcome,
    /// The name could be anybody's.
    Misdirected,
    /// Another site asks, in a browser.
    CrossSite,
}

/// Looks at a request's host, and at what a browser says of who asks.
pub(super) fn verdict<B>(request: &Request<B>, names: &[String]) -> Verdict {
    let absolute = request.uri().authority().map(http::uri::Authority::as_str);
    let mut hosts = request.headers().get_all(HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok());
    let is_known = |host: &str| is_known(host, names);
    if !host.is_some_and(is_known) || hosts.next().is_some() || !absolute.is_none_or(is_known) {
        return Verdict::Misdirected;
    }
    if is_cross_site(request.headers()) { Verdict::CrossSite } else { Verdict::Welcome }
}

fn is_known(authority: &str, names: &[String]) -> bool {
    let host = without_port(authority);
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let host = host.strip_suffix('.').unwrap_or(host);
    address.parse::<IpAddr>().is_ok()
        || host.eq_ignore_ascii_case("localhost")
        || names.iter().any(|name| host.eq_ignore_ascii_case(name))
}

fn without_port(authority: &str) -> &str {
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    match authority.rsplit_once(':') {
        // The colons of an address of version 6 stand in brackets.
        Some((host, port)) if is_port(port) && (host.ends_with(']') || !host.contains(':')) => host,
        _ => authority,
    }
}

/// A page of another site cannot read the answer, but could hold streams open.
fn is_cross_site(headers: &HeaderMap) -> bool {
    headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site")
        && headers.get("sec-fetch-mode").is_none_or(|mode| mode != "navigate")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(host: &str) -> Request<()> {
        Request::get("/").header(HOST, host).body(()).unwrap()
    }

    #[test]
    fn addresses_localhost_and_given_names_are_welcome() {
        let names = ["listless.shop.svc".to_owned()];
        for host in [
            "127.0.0.1",
            "127.0.0.1:7444",
            "10.1.2.3:80",
            "[::1]:7444",
            "[fe80::1]",
            "localhost",
            "LocalHost:7444",
            "localhost.:7444",
            "listless.shop.svc:7444",
        ] {
            assert_eq!(verdict(&asked(host), &names), Verdict::Welcome, "{host}");
        }
    }

    #[test]
    fn a_name_that_could_be_anybodys_is_not() {
        for host in [
            "evil.example",
            "evil.example:7444",
            "localhost.evil.example",
            "127.0.0.1.evil.example:7444",
            "listless.shop.svc",
            "",
            ":7444",
            "[::1",
            "127.0.0.1@evil.example",
        ] {
            assert_eq!(verdict(&asked(host), &[]), Verdict::Misdirected, "{host}");
        }
        let without = Request::get("/").body(()).unwrap();
        assert_eq!(verdict(&without, &[]), Verdict::Misdirected);
        let twice = Request::get("/").header(HOST, "localhost").header(HOST, "evil.example");
        assert_eq!(verdict(&twice.body(()).unwrap(), &[]), Verdict::Misdirected);
        let absolute = Request::get("http://evil.example/").header(HOST, "localhost");
        assert_eq!(verdict(&absolute.body(()).unwrap(), &[]), Verdict::Misdirected);
    }

    #[test]
    fn a_page_of_another_site_is_refused_and_a_link_on_it_is_followed() {
        let mut request = asked("localhost");
        request.headers_mut().insert("sec-fetch-site", "cross-site".parse().unwrap());
        assert_eq!(verdict(&request, &[]), Verdict::CrossSite);
        request.headers_mut().insert("sec-fetch-mode", "navigate".parse().unwrap());
        assert_eq!(verdict(&request, &[]), Verdict::Welcome);
    }
}
