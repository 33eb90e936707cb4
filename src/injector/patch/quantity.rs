//! Kubernetes quantities as comparable numbers.

/// The units, longer names first: `Ki` is not `K` with a suffix.
const UNITS: [(&str, f64); 12] = [
    ("Ki", 1024.0),
    ("Mi", 1024.0 * 1024.0),
    ("Gi", 1024.0 * 1024.0 * 1024.0),
    ("Ti", 1024.0 * 1024.0 * 1024.0 * 1024.0),
    ("m", 0.001),
    ("k", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
    ("u", 1e-6),
    ("n", 1e-9),
    ("", 1.0),
];

/// Returns the number of a positive quantity. `None` for any other text.
pub(super) fn parse(text: &str) -> Option<f64> {
    let (unit, factor) = UNITS.iter().find(|(unit, _)| text.ends_with(unit))?;
    let number = text.strip_suffix(unit)?;
    let is_decimal = |c: char| c.is_ascii_digit() || c == '.';
    if !number.starts_with(|c: char| c.is_ascii_digit()) || !number.chars().all(is_decimal) {
        return None;
    }
    number.parse::<f64>().ok().filter(|number| *number > 0.0).map(|number| number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_numbers_with_a_unit() {
        assert_eq!(parse("100m"), Some(0.1));
        assert_eq!(parse("1"), Some(1.0));
        assert_eq!(parse("0.5"), Some(0.5));
        assert_eq!(parse("64Mi"), Some(64.0 * 1024.0 * 1024.0));
        assert_eq!(parse("2G"), Some(2e9));
        for refused in ["", "Mi", "-1", "1e3", "0", "1 Gi", "1Xi", ".5", "1.2.3", "inf", "NaN"] {
            assert_eq!(parse(refused), None, "{refused}");
        }
    }
}
