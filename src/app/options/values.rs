//! Parsers of the values of options.

use std::{
    net::{SocketAddr, ToSocketAddrs},
    ops::RangeInclusive,
};

/// Parses an address to listen on, numeric or with a host name.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let resolved = text.to_socket_addrs().ok().and_then(|mut all| all.next());
    resolved.ok_or_else(|| {
        "write HOST:PORT, such as 127.0.0.1:7443, localhost:7443 or [::1]:7443".to_owned()
    })
}

/// Returns a parser of whole numbers, whose error names the range.
pub(crate) fn whole<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| {
            format!("write a whole number from {} to {}", range.start(), range.end())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_outside_its_range_is_an_error_that_names_it() {
        let parse = whole::<u8>(1..=64);
        assert_eq!(parse("64"), Ok(64));
        for wrong in ["", "0", "65", "-1", "x", "1.5", "99999999999999999999"] {
            assert_eq!(
                parse(wrong),
                Err("write a whole number from 1 to 64".to_owned()),
                "{wrong}"
            );
        }
    }

    #[test]
    fn an_address_is_a_number_or_a_name_with_a_port() {
        assert!(address("localhost:7443").expect("a name").ip().is_loopback());
        assert!(address("[::1]:7443").expect("IPv6").is_ipv6());
        for wrong in ["here", "7443", "127.0.0.1", "::1"] {
            assert!(address(wrong).expect_err(wrong).contains("localhost:7443"), "{wrong}");
        }
    }
}
