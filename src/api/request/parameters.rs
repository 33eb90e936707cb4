//! The query string, parsed as Go's `url.ParseQuery` does (S-URL-09).

use std::borrow::Cow;

use super::NotModelled;

/// A known parameter of GET, LIST or WATCH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parameter {
    AllowWatchBookmarks,
    Continue,
    FieldSelector,
    IncludeObject,
    LabelSelector,
    Limit,
    Pretty,
    ResourceVersion,
    ResourceVersionMatch,
    SendInitialEvents,
    Timeout,
    TimeoutSeconds,
    Watch,
}

/// The parameters of one request; the first value of a repeated one counts.
#[derive(Debug, Default)]
pub(super) struct Parameters<'a> {
    values: [Option<Cow<'a, str>>; NAMES.len()],
    /// `true` if a pair was dropped, as the apiserver drops it.
    malformed: bool,
    /// `true` if there is a parameter that is not in [`Parameter`].
    unknown: bool,
    /// `true` if a known parameter is repeated.
    repeated: bool,
    /// `true` if `dryRun` is present.
    pub(super) dry_run: bool,
}

/// The names, in the order of [`Parameter`].
const NAMES: [&str; 13] = [
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "includeObject",
    "labelSelector",
    "limit",
    "pretty",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeout",
    "timeoutSeconds",
    "watch",
];

/// The limit of pairs. The apiserver's parser drops the whole query above ten thousand.
const PAIRS_MAX: usize = 1000;

// === impl Parameters ===

impl<'a> Parameters<'a> {
    /// Parses a raw query string; pairs that do not decode are dropped and noted.
    pub(super) fn parse(raw: &'a str) -> Self {
        let malformed = raw.split('&').count() > PAIRS_MAX;
        let mut parameters = Self { malformed, ..Self::default() };
        for pair in raw.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match (decode_text(name), decode_text(value)) {
                (Some(name), Some(value)) if !pair.contains(';') => {
                    // The apiserver looks for `pretty` in the text as it was sent.
                    parameters.unknown |= matches!(name, Cow::Owned(_));
                    parameters.add(&name, value);
                }
                _ => parameters.malformed = true,
            }
        }
        parameters
    }

    /// Returns the value of a parameter, if present.
    pub(super) fn get(&self, parameter: Parameter) -> Option<&str> {
        self.values[parameter as usize].as_deref()
    }

    /// Returns the value of a parameter whose empty value means the same as absence.
    pub(super) fn get_set(&self, parameter: Parameter) -> Option<&str> {
        self.get(parameter).filter(|value| !value.is_empty())
    }

    /// Returns the value of a boolean parameter: any value except `0` and `false` is true
    /// (S-URL-06).
    pub(super) fn flag(&self, parameter: Parameter) -> bool {
        let is_true = |value: &str| value != "0" && !value.eq_ignore_ascii_case("false");
        self.get(parameter).is_some_and(is_true)
    }

    /// Reports whether no other known parameter is present.
    pub(super) fn only(&self, allowed: &[Parameter]) -> bool {
        let present = self.values.iter().enumerate().filter(|(_, value)| value.is_some());
        present.map(|(index, _)| index).all(|index| allowed.iter().any(|p| *p as usize == index))
    }

    /// Checks that every parameter is known, valid and not repeated.
    pub(super) fn check(&self) -> Result<(), NotModelled> {
        if self.malformed {
            return Err(NotModelled::MalformedQuery);
        }
        if self.unknown || self.dry_run {
            return Err(NotModelled::UnknownParameter);
        }
        if self.repeated {
            return Err(NotModelled::RepeatedParameter);
        }
        Ok(())
    }

    fn add(&mut self, name: &str, value: Cow<'a, str>) {
        match NAMES.iter().position(|known| *known == name) {
            Some(index) if self.values[index].is_some() => self.repeated = true,
            Some(index) => self.values[index] = Some(value),
            None if name == "dryRun" => self.dry_run = true,
            None => self.unknown = true,
        }
    }
}

/// Decodes percent-encoding as Go does; `None` if an escape is not two hexadecimal digits.
pub(super) fn decode(encoded: &str, plus_is_space: bool) -> Option<Cow<'_, [u8]>> {
    let bytes = encoded.as_bytes();
    let special = |byte: &u8| *byte == b'%' || (plus_is_space && *byte == b'+');
    if !bytes.iter().any(special) {
        return Some(Cow::Borrowed(bytes));
    }
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        decoded.push(match byte {
            b'%' => {
                let (&[high, low], tail) = rest.split_first_chunk()?;
                rest = tail;
                hexadecimal(high)? << 4 | hexadecimal(low)?
            }
            b'+' if plus_is_space => b' ',
            plain => plain,
        });
    }
    Some(Cow::Owned(decoded))
}

/// Decodes a name or value of the query; also `None` if the result is not UTF-8.
pub fn decode_text(encoded: &str) -> Option<Cow<'_, str>> {
    match decode(encoded, true)? {
        Cow::Borrowed(_) => Some(Cow::Borrowed(encoded)),
        Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
    }
}

fn hexadecimal(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_of_too_many_pairs_is_malformed() {
        let query = |ampersands: usize| format!("limit=5{}", "&".repeat(ampersands));
        assert_eq!(Parameters::parse(&query(PAIRS_MAX - 1)).check(), Ok(()));
        let expected = Err(NotModelled::MalformedQuery);
        assert_eq!(Parameters::parse(&query(PAIRS_MAX)).check(), expected);
    }
}
