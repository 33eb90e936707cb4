//! The validity of a certificate: the one field of X.509 that monitoring needs.
//!
//! It parses only the necessary DER and verifies nothing; rustls verifies certificates. An
//! unreadable certificate has no validity here.

use std::time::SystemTime;

use jiff::{civil::DateTime, tz::TimeZone};
use rustls::pki_types::CertificateDer;

/// The rest of a sequence of DER values.
struct Values<'a>(&'a [u8]);

/// A value's tag and its content.
type Value<'a> = (u8, &'a [u8]);

const SEQUENCE: u8 = 0x30;
/// The tag of the version, which the oldest certificates omit.
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The first two-digit year that belongs to the twentieth century (RFC 5280, section 4.1.2.5.1).
const CENTURY_TURNS_AT: i16 = 50;
/// The maximum size of a length field. Certificates have no longer ones.
const LENGTH_BYTES_MAX: usize = 4;

// === impl Authority ===

impl super::Authority {
    /// Returns the first and the last moment at which its certificate is valid, if readable.
    pub fn validity(&self) -> Option<(SystemTime, SystemTime)> {
        validity(&self.certificate)
    }
}

/// Returns the last moment at which a certificate is valid.
pub(super) fn not_after(certificate: &CertificateDer<'_>) -> Option<SystemTime> {
    validity(certificate).map(|(_, until)| until)
}

/// Returns the first and the last moment at which a certificate is valid (RFC 5280, section 4.1).
pub(super) fn validity(certificate: &CertificateDer<'_>) -> Option<(SystemTime, SystemTime)> {
    let mut signed = Values(Values(certificate).sequence()?);
    let mut fields = Values(signed.sequence()?);
    let (first, _) = fields.next()?;
    // The version, the serial number, the algorithm and the issuer precede the validity.
    let skipped = if first == VERSION { 3 } else { 2 };
    for _ in 0..skipped {
        fields.next()?;
    }
    let mut validity = Values(fields.sequence()?);
    let mut moment = || {
        let (tag, text) = validity.next()?;
        time(tag, std::str::from_utf8(text).ok()?)
    };
    Some((moment()?, moment()?))
}

fn time(tag: u8, text: &str) -> Option<SystemTime> {
    let digits = text.strip_suffix('Z')?;
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = digits.split_at_checked(2)?;
            let year: i16 = year.parse().ok()?;
            (year + if year < CENTURY_TURNS_AT { 2000 } else { 1900 }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = digits.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    if rest.len() != 10 {
        return None;
    }
    let two = |at: usize| rest.get(at..at + 2)?.parse::<i8>().ok();
    let time = DateTime::new(year, two(0)?, two(2)?, two(4)?, two(6)?, two(8)?, 0).ok()?;
    let moment = TimeZone::UTC.to_timestamp(time).ok()?;
    Some(SystemTime::from(moment))
}

// === impl Values ===

impl<'a> Values<'a> {
    fn next(&mut self) -> Option<Value<'a>> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match usize::from(first) {
            short if short < 0x80 => (short, rest),
            long => {
                let (bytes, rest) = rest.split_at_checked(long - 0x80)?;
                if bytes.len() > LENGTH_BYTES_MAX {
                    return None;
                }
                (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
            }
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }

    fn sequence(&mut self) -> Option<&'a [u8]> {
        self.next().filter(|(tag, _)| *tag == SEQUENCE).map(|(_, content)| content)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn ending(year: i32) -> CertificateDer<'static> {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec!["gateway".to_owned()]).expect("a name");
        params.not_after = date_time_ymd(year, 3, 4);
        params.self_signed(&key).expect("a certificate").der().clone()
    }

    fn seconds(time: SystemTime) -> u64 {
        time.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs()
    }

    #[test]
    fn the_end_is_read_in_both_time_formats() {
        // Years from 2050 have four digits.
        for year in [1999, 2031, 2049, 2050, 2077] {
            let wanted = date_time_ymd(year, 3, 4).unix_timestamp();
            let found = not_after(&ending(year)).expect("an end");
            assert_eq!(seconds(found), u64::try_from(wanted).expect("after 1970"), "{year}");
        }
    }

    #[test]
    fn other_time_formats_have_no_end() {
        let day = Duration::from_secs(24 * 3600);
        assert_eq!(time(UTC_TIME, "700102000000Z"), Some(SystemTime::UNIX_EPOCH + day));
        for text in ["", "Z", "7001020000Z", "700102000000", "701302000000Z", "70é02000000Z"] {
            assert_eq!(time(UTC_TIME, text), None, "{text}");
            assert_eq!(time(GENERALIZED_TIME, text), None, "{text}");
        }
        assert_eq!(time(SEQUENCE, "700102000000Z"), None);
    }

    proptest! {
        #[test]
        fn invalid_input_is_never_accepted_and_never_panics(
            at in 0usize..400,
            byte in any::<u8>(),
            length in 0usize..400,
        ) {
            let mut bytes = ending(2031).to_vec();
            let last = bytes.len() - 1;
            bytes[at.min(last)] = byte;
            bytes.truncate(length);
            let _ = not_after(&CertificateDer::from(bytes));
        }
    }
}
