//! The `timeout` parameter: a duration in Go's notation (S-URL-11).

use std::time::Duration;

/// The text is not a duration; the apiserver answers 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotADuration;

const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000), // U+00B5, the micro sign
    ("μs", 1_000), // U+03BC, the Greek letter
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// The limit of Go's durations, which are signed 64-bit nanoseconds.
const NANOSECONDS_MAX: u64 = i64::MAX as u64;

/// Parses a timeout; the empty text, zero and negative durations mean none.
pub(super) fn timeout(text: &str) -> Result<Option<Duration>, NotADuration> {
    if text.is_empty() {
        return Ok(None);
    }
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if unsigned == "0" {
        return Ok(None);
    }
    let total = nanoseconds(unsigned)?;
    Ok((total > 0 && !negative).then(|| Duration::from_nanos(total)))
}

fn nanoseconds(mut text: &str) -> Result<u64, NotADuration> {
    if text.is_empty() {
        return Err(NotADuration);
    }
    let mut total: u64 = 0;
    while !text.is_empty() {
        let (whole, rest) = digits(text);
        let (fraction, rest) = rest.strip_prefix('.').map_or(("", rest), digits);
        if whole.is_empty() && fraction.is_empty() {
            return Err(NotADuration);
        }
        let end = rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        let unit = UNITS.iter().find(|(unit, _)| *unit == name).ok_or(NotADuration)?.1;
        let amount = whole_part(whole)?.checked_mul(unit).ok_or(NotADuration)?;
        total = amount
            .checked_add(fraction_part(fraction, unit))
            .and_then(|amount| total.checked_add(amount))
            .filter(|total| *total <= NANOSECONDS_MAX)
            .ok_or(NotADuration)?;
        text = rest;
    }
    Ok(total)
}

/// Splits after the leading decimal digits.
fn digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

fn whole_part(digits: &str) -> Result<u64, NotADuration> {
    if digits.is_empty() { Ok(0) } else { digits.parse().map_err(|_| NotADuration) }
}

/// Returns the nanoseconds of the digits after the point, rounded down; only eighteen digits count.
fn fraction_part(digits: &str, unit: u64) -> u64 {
    let digits = &digits[..digits.len().min(18)];
    let scale = 10_u128.pow(u32::try_from(digits.len()).unwrap_or_default());
    let value = u128::from(whole_part(digits).unwrap_or_default()) * u128::from(unit) / scale;
    u64::try_from(value).unwrap_or_default()
}
