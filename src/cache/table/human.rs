//! Durations in the short form of the apiserver's printers. Pure.
//!
//! The forms and their limits are those of `HumanDuration` of `k8s.io/apimachinery`.

/// A point in time, in nanoseconds since the Unix epoch: years 1678 to 2262.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub i64);

/// The nanoseconds of a second.
pub(super) const SECOND: i64 = 1_000_000_000;

/// The seconds of a minute, an hour, a day and a year.
const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// The text of a duration that lies too far in the future.
pub(super) const INVALID: &str = "<invalid>";

// === impl Moment ===

impl Moment {
    /// Parses a timestamp of RFC 3339 as a Kubernetes object holds it; `None` for any other text
    /// and for years that do not fit.
    pub fn parse(text: &str) -> Option<Self> {
        is_plain(text.as_bytes()).then_some(())?;
        let parsed: jiff::Timestamp = text.parse().ok()?;
        i64::try_from(parsed.as_nanosecond()).ok().map(Self)
    }

    /// Returns the moment some nanoseconds later, or as near as it can be told.
    pub fn plus(self, nanoseconds: i64) -> Self {
        Self(self.0.saturating_add(nanoseconds))
    }

    /// Returns the whole seconds since the Unix epoch.
    pub fn seconds(self) -> i64 {
        self.0.div_euclid(SECOND)
    }

    /// Returns the nanoseconds since an earlier moment.
    pub fn since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Reports whether a text is `YYYY-MM-DDTHH:MM:SS`, a fraction or none, and `Z` or an offset: what
/// Go and this crate's parser read alike.
fn is_plain(text: &[u8]) -> bool {
    let fits = |text: &[u8], shape: &[u8]| {
        text.len() == shape.len()
            && text.iter().zip(shape).all(|(byte, wanted)| match wanted {
                b'0' => byte.is_ascii_digit(),
                b'+' => matches!(byte, b'+' | b'-'),
                _ => byte == wanted,
            })
    };
    let Some((whole, rest)) = text.split_at_checked(19) else { return false };
    let zone = match rest.split_first() {
        Some((b'.', fraction)) => {
            let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if !(1..=9).contains(&digits) {
                return false;
            }
            &fraction[digits..]
        }
        _ => rest,
    };
    // A leap second is an error in Go.
    let leaps = whole.ends_with(b":60");
    fits(whole, b"0000-00-00T00:00:00") && !leaps && (zone == b"Z" || fits(zone, b"+00:00"))
}

/// Appends the short form of a duration in nanoseconds.
pub(super) fn write_human(text: &mut String, nanoseconds: i64) {
    use std::fmt::Write as _;
    let seconds = nanoseconds / SECOND;
    let two = |text: &mut String, (first, unit): (i64, char), (second, small): (i64, char)| {
        // Writing to a String cannot fail.
        let _ = match second {
            0 => write!(text, "{first}{unit}"),
            _ => write!(text, "{first}{unit}{second}{small}"),
        };
    };
    let none = (0, ' ');
    match seconds {
        ..-1 => text.push_str(INVALID),
        -1 => text.push_str("0s"),
        _ if seconds < 2 * MINUTE => two(text, (seconds, 's'), none),
        _ if seconds < 10 * MINUTE => {
            two(text, (seconds / MINUTE, 'm'), (seconds % MINUTE, 's'));
        }
        _ if seconds < 3 * HOUR => two(text, (seconds / MINUTE, 'm'), none),
        _ if seconds < 8 * HOUR => {
            two(text, (seconds / HOUR, 'h'), (seconds % HOUR / MINUTE, 'm'));
        }
        _ if seconds < 2 * DAY => two(text, (seconds / HOUR, 'h'), none),
        _ if seconds < 8 * DAY => two(text, (seconds / DAY, 'd'), (seconds % DAY / HOUR, 'h')),
        _ if seconds < 2 * YEAR => two(text, (seconds / DAY, 'd'), none),
        _ if seconds < 8 * YEAR => two(text, (seconds / YEAR, 'y'), (seconds % YEAR / DAY, 'd')),
        _ => two(text, (seconds / YEAR, 'y'), none),
    }
}

/// Returns the short form of a duration in nanoseconds.
pub(super) fn human(nanoseconds: i64) -> String {
    let mut text = String::new();
    write_human(&mut text, nanoseconds);
    text
}

/// Returns a duration not above the first one whose short form differs: until it, the text stays.
pub(super) fn reads_alike_until(nanoseconds: i64) -> i64 {
    if nanoseconds <= -2 * SECOND {
        return -2 * SECOND + 1;
    }
    let seconds = nanoseconds.max(0) / SECOND;
    let unit = match seconds {
        _ if seconds < 10 * MINUTE => 1,
        _ if seconds < 8 * HOUR => MINUTE,
        _ if seconds < 8 * DAY => HOUR,
        _ => DAY,
    };
    (seconds / unit + 1).saturating_mul(unit).saturating_mul(SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_the_apiservers() {
        let (m, h, d, y) = (60, 3600, 86_400, 365 * 86_400);
        for (seconds, expected) in [
            (-3, "<invalid>"),
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (1, "1s"),
            (70, "70s"),
            (119, "119s"),
            (2 * m, "2m"),
            (2 * m + 1, "2m1s"),
            (10 * m - 1, "9m59s"),
            (10 * m, "10m"),
            (10 * m + 59, "10m"),
            (3 * h - 1, "179m"),
            (3 * h, "3h"),
            (3 * h + m, "3h1m"),
            (8 * h - 1, "7h59m"),
            (8 * h, "8h"),
            (48 * h - 1, "47h"),
            (48 * h, "2d"),
            (2 * d + h, "2d1h"),
            (8 * d - 1, "7d23h"),
            (8 * d, "8d"),
            (2 * y - 1, "729d"),
            (2 * y, "2y"),
            (2 * y + d, "2y1d"),
            (8 * y - 1, "7y364d"),
            (8 * y, "8y"),
            (9 * y + 364 * d, "9y"),
            (250 * y, "250y"),
        ] {
            assert_eq!(human(seconds * SECOND), expected, "{seconds}");
        }
        assert_eq!(human(-SECOND - SECOND / 2), "0s");
        assert_eq!(human(2 * SECOND - 1), "1s");
        assert_eq!(human(i64::MAX), "292y");
    }

    #[test]
    fn a_text_stays_until_the_duration_that_is_told() {
        let lengths = [0, 1, 59, 119, 120, 599, 600, 10_799, 28_799, 172_799, 691_199, 63_071_999];
        for length in lengths.map(|seconds| seconds * SECOND).into_iter().chain([-5, -2 * SECOND]) {
            let until = reads_alike_until(length);
            assert!(until > length);
            assert_eq!(human(length), human(until - 1), "{length}");
        }
    }

    #[test]
    fn timestamps_are_read_as_go_reads_them() {
        let second = Moment::parse("2026-01-02T03:04:05Z").expect("a timestamp");
        for (text, nanoseconds) in [
            ("2026-01-02T03:04:05.25Z", SECOND / 4),
            ("2026-01-02T03:04:05.000001Z", 1000),
            ("2026-01-02T05:04:05+02:00", 0),
            ("2026-01-01T21:34:06-05:30", SECOND),
        ] {
            assert_eq!(Moment::parse(text), Some(second.plus(nanoseconds)), "{text}");
        }
        for text in [
            "",
            "5m",
            "2026-01-02",
            "2026-01-02 03:04:05Z",
            "2026-01-02t03:04:05z",
            "2026-01-02T03:04:05",
            "2026-01-02T03:04:60Z",
            "2026-01-02T03:04:05.Z",
            "2026-01-02T03:04:05,5Z",
            "2026-01-02T03:04:05Z[UTC]",
            "2026-13-02T03:04:05Z",
            "0001-01-01T00:00:00Z",
        ] {
            assert_eq!(Moment::parse(text), None, "{text}");
        }
    }
}
