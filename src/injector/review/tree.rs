//! The object of a review as a tree of bounded size.
//!
//! Invariant: no value beyond the bound is built, whatever the body contains.

use std::fmt;

use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

/// Parses one value with all values in it, and counts them.
struct Counted<'a> {
    /// The number of values that may still be built.
    remaining: &'a mut usize,
}

/// The maximum number of values of an object. A usual pod has some hundreds, a large one thousands.
///
/// A value takes at most 700 bytes, as a map of one entry, beside its texts, and a patch holds three
/// trees at once: 21 MB and three times the body, for one review at a time, because one thread
/// parses them.
pub(super) const VALUES_MAX: usize = 10_000;

/// The field that becomes an empty list, because no part of the injector reads it. It has more
/// values than the rest of a pod.
const UNREAD: &str = "managedFields";

/// Parses an object of at most [`VALUES_MAX`] values.
pub(super) fn bounded<'de, D: Deserializer<'de>>(object: D) -> Result<Value, D::Error> {
    let mut remaining = VALUES_MAX;
    Counted { remaining: &mut remaining }.deserialize(object)
}

// === impl Counted ===

impl Counted<'_> {
    fn next(&mut self) -> Counted<'_> {
        Counted { remaining: &mut *self.remaining }
    }
}

impl<'de> DeserializeSeed<'de> for Counted<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<Value, D::Error> {
        let too_many =
            || Error::custom(format_args!("the object has more than {VALUES_MAX} values"));
        *self.remaining = self.remaining.checked_sub(1).ok_or_else(too_many)?;
        value.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Counted<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = items.next_element_seed(self.next())? {
            elements.push(element);
        }
        Ok(Value::Array(elements))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            let value = if name == UNREAD {
                entries.next_value::<IgnoredAny>()?;
                Value::Array(Vec::new())
            } else {
                entries.next_value_seed(self.next())?
            };
            fields.insert(name, value);
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parsed(text: &str) -> Result<Value, serde_json::Error> {
        bounded(&mut serde_json::Deserializer::from_str(text))
    }

    #[test]
    fn the_tree_is_that_of_serde_json_without_managed_fields() {
        let object = json!({
            "none": null, "yes": true, "numbers": [0, -1, 1.5, u64::MAX, i64::MIN, 1e300],
            "texts": ["", "a\n\"\u{e9}"], "empty": [{}, []], "metadata": {"name": "web"},
        });
        assert_eq!(parsed(&object.to_string()).unwrap(), object);
        let twice = parsed(r#"{"metadata": {"managedFields": [{"a": 1}], "a": 1, "a": 2}}"#);
        assert_eq!(twice.unwrap(), json!({"metadata": {"managedFields": [], "a": 2}}));
        for text in ["", "{", "[1,]", "{\"a\"}", &"[".repeat(1000)] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_bound_counts_every_value() {
        let list = |item: &str, count: usize| format!("[{}]", vec![item; count].join(","));
        for (item, values) in [("0", 1), ("[]", 1), ("{}", 1), (r#"{"a":{}}"#, 2), ("[[0]]", 3)] {
            let most = (VALUES_MAX - 1) / values;
            assert!(parsed(&list(item, most)).is_ok(), "{item}");
            assert!(parsed(&list(item, most + 1)).is_err(), "{item}");
        }
    }
}
