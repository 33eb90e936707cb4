//! The host check: no other site may read the admin address through a browser.
//!
//! An attacker can point a host name of theirs at this machine (DNS rebinding). Only IP addresses,
//! localhost and the operator's names are accepted as host. Health checks and metrics name no
//! objects and accept any host, because scrapers use any name.

use std::net::IpAddr;

use http::{HeaderMap, Request, header::HOST};

/// The result of the host check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The host is accepted.
    Welcome,
    /// The host is unknown and may belong to anybody.
    Misdirected,
    /// A page of another site sent the request.
    CrossSite,
}

/// Checks a request's host and the origin that the browser reports.
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
        // The colons of an IPv6 address are in brackets.
        Some((host, port)) if is_port(port) && (host.ends_with(']') || !host.contains(':')) => host,
        _ => authority,
    }
}

/// Reports whether another site's page sent the request. It cannot read the response, but it could
/// hold streams open.
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
    fn addresses_localhost_and_configured_names_are_accepted() {
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
    fn an_unknown_name_is_refused() {
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
    fn a_request_of_another_sites_page_is_refused_and_a_link_is_followed() {
        let mut request = asked("localhost");
        request.headers_mut().insert("sec-fetch-site", "cross-site".parse().unwrap());
        assert_eq!(verdict(&request, &[]), Verdict::CrossSite);
        request.headers_mut().insert("sec-fetch-mode", "navigate".parse().unwrap());
        assert_eq!(verdict(&request, &[]), Verdict::Welcome);
    }
}
