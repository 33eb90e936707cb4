//! `NO_PROXY`: the hosts for which an `HTTPS_PROXY` of the environment is not used.
//!
//! It does not apply to a kubeconfig's own `proxy-url`, as with kubectl.

use std::net::IpAddr;

/// Reports whether the environment's proxy must not be used for `host`.
pub(super) fn is_exempt(host: &str) -> bool {
    let list = ["NO_PROXY", "no_proxy"].into_iter().find_map(|name| std::env::var(name).ok());
    is_listed(host.trim_start_matches('[').trim_end_matches(']'), &list.unwrap_or_default())
}

/// Reports whether a host bypasses the proxy: loopback always does, other hosts only if `list`
/// names them.
fn is_listed(host: &str, list: &str) -> bool {
    let address: Option<IpAddr> = host.parse().ok();
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return true;
    }
    list.split(',').map(str::trim).filter(|entry| !entry.is_empty()).any(|entry| {
        entry == "*"
            || match address {
                Some(address) => covers_address(entry, address),
                None => covers_name(entry, host),
            }
    })
}

fn covers_name(entry: &str, host: &str) -> bool {
    let (entry, host) = (entry.to_ascii_lowercase(), host.to_ascii_lowercase());
    let suffix = entry.trim_start_matches("*.").trim_start_matches('.');
    let within = host.strip_suffix(suffix).is_some_and(|rest| rest.ends_with('.'));
    within || host == suffix && !entry.starts_with('.')
}

fn covers_address(entry: &str, address: IpAddr) -> bool {
    let Some((network, length)) = entry.split_once('/') else {
        return entry.parse() == Ok(address);
    };
    let (Ok(network), Ok(length)) = (network.parse(), length.parse::<u32>()) else { return false };
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            let shift = 32_u32.saturating_sub(length);
            let prefix = |bits: u32| bits.checked_shr(shift).unwrap_or(0);
            prefix(network.to_bits()) == prefix(address.to_bits())
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => {
            let shift = 128_u32.saturating_sub(length);
            let prefix = |bits: u128| bits.checked_shr(shift).unwrap_or(0);
            prefix(network.to_bits()) == prefix(address.to_bits())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_exempt_as_in_go_programs() {
        let cases = [
            ("example.com", "example.com", true),
            ("a.example.com", "example.com", true),
            ("a.example.com", ".example.com", true),
            ("example.com", ".example.com", false),
            ("badexample.com", "example.com", false),
            ("A.Example.Com", " x , EXAMPLE.com", true),
            ("10.1.2.3", "10.0.0.0/8", true),
            ("11.1.2.3", "10.0.0.0/8", false),
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3", "0.0.0.0/0", true),
            ("fd00::1", "fd00::/8", true),
            ("fd00::1", "10.0.0.0/8", false),
            ("example.com", "*", true),
            ("127.0.0.1", "", true),
            ("localhost", "", true),
            ("example.com", "", false),
        ];
        for (host, list, exempt) in cases {
            assert_eq!(is_listed(host, list), exempt, "{host} in {list:?}");
        }
    }
}
