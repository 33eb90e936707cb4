//! A JSON value that keeps the order of keys, serialized like Go's encoder does.
//!
//! The apiserver sends built-in objects in struct order and custom ones with sorted keys. A map
//! that sorts its keys could not distinguish the two.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, SeqAccess, Visitor},
};
use serde_json::Number;

/// A JSON value whose objects keep their key order.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, integral or not.
    Number(Number),
    /// A string.
    String(String),
    /// An array.
    Array(Vec<Self>),
    /// An object. A repeated key keeps its last value.
    Object(Vec<(String, Self)>),
}

struct JsonVisitor;

// === impl Json ===

impl Json {
    /// Parses one JSON document.
    pub fn parse(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// Returns an object of these members.
    pub fn object<const N: usize>(members: [(&str, Self); N]) -> Self {
        Self::Object(members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    /// Returns the member `key` of an object.
    pub fn get(&self, key: &str) -> Option<&Self> {
        let Self::Object(members) = self else { return None };
        members.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// Returns the value at a path of members.
    pub fn at(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |value, key| value.get(key))
    }

    /// Returns the string at a path of members.
    pub fn str_at(&self, path: &[&str]) -> Option<&str> {
        self.at(path).and_then(Self::as_str)
    }

    /// Returns the string, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    /// Returns the elements, if it is an array.
    pub fn as_array(&self) -> &[Self] {
        if let Self::Array(elements) = self { elements } else { &[] }
    }

    /// Returns the members, if it is an object.
    pub fn members(&self) -> &[(String, Self)] {
        if let Self::Object(members) = self { members } else { &[] }
    }

    /// Reports whether it is an empty object, an empty array, or null.
    pub fn is_blank(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Array(elements) => elements.is_empty(),
            Self::Object(members) => members.is_empty(),
            Self::Bool(_) | Self::Number(_) | Self::String(_) => false,
        }
    }

    /// Returns the mutable members. A value that is no object becomes one.
    pub fn members_mut(&mut self) -> &mut Vec<(String, Self)> {
        if !matches!(self, Self::Object(_)) {
            *self = Self::Object(Vec::new());
        }
        let Self::Object(members) = self else { unreachable!("made an object just above") };
        members
    }

    /// Returns the mutable member `key`. An absent one is added as null.
    pub fn entry(&mut self, key: &str) -> &mut Self {
        let members = self.members_mut();
        let index = members.iter().position(|(name, _)| name == key).unwrap_or_else(|| {
            members.push((key.to_owned(), Self::Null));
            members.len() - 1
        });
        &mut members[index].1
    }

    /// Sets the member `key`, in place if it exists.
    pub fn set(&mut self, key: &str, value: impl Into<Self>) {
        *self.entry(key) = value.into();
    }

    /// Removes the member `key`.
    pub fn remove(&mut self, key: &str) -> Option<Self> {
        let Self::Object(members) = self else { return None };
        let index = members.iter().position(|(name, _)| name == key)?;
        Some(members.remove(index).1)
    }

    /// Sorts members by the given order. Unnamed ones stay behind the others in their order.
    pub fn order_members(&mut self, order: &[&str]) {
        let rank = |key: &str| order.iter().position(|known| *known == key).unwrap_or(order.len());
        self.members_mut().sort_by_key(|(key, _)| rank(key));
    }

    /// Sorts the keys of every nested object, as Go does for maps.
    pub fn sort_keys(&mut self) {
        match self {
            Self::Array(elements) => elements.iter_mut().for_each(Self::sort_keys),
            Self::Object(members) => {
                members.sort_by(|(left, _), (right, _)| left.cmp(right));
                members.iter_mut().for_each(|(_, value)| value.sort_keys());
            }
            _ => {}
        }
    }

    /// Returns the compact text.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }

    /// Appends the compact text.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Null => out.extend_from_slice(b"null"),
            Self::Bool(true) => out.extend_from_slice(b"true"),
            Self::Bool(false) => out.extend_from_slice(b"false"),
            Self::Number(number) => out.extend_from_slice(number.to_string().as_bytes()),
            Self::String(text) => write_string(text, out),
            Self::Array(elements) => {
                out.push(b'[');
                for (index, element) in elements.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    element.write(out);
                }
                out.push(b']');
            }
            Self::Object(members) => {
                out.push(b'{');
                write_members(members, out);
                out.push(b'}');
            }
        }
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<String> for Json {
    fn from(text: String) -> Self {
        Self::String(text)
    }
}

impl From<u64> for Json {
    fn from(number: u64) -> Self {
        Self::Number(number.into())
    }
}

impl From<bool> for Json {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<serde_json::Value> for Json {
    fn from(value: serde_json::Value) -> Self {
        match value {
            serde_json::Value::Null => Self::Null,
            serde_json::Value::Bool(value) => Self::Bool(value),
            serde_json::Value::Number(number) => Self::Number(number),
            serde_json::Value::String(text) => Self::String(text),
            serde_json::Value::Array(elements) => {
                Self::Array(elements.into_iter().map(Into::into).collect())
            }
            serde_json::Value::Object(members) => {
                Self::Object(members.into_iter().map(|(key, value)| (key, value.into())).collect())
            }
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

// === impl JsonVisitor ===

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Json, E> {
        Number::from_f64(value).map(Json::Number).ok_or_else(|| E::custom("not a JSON number"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(Json::String(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Json, E> {
        Ok(Json::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Json, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = access.next_element()? {
            elements.push(element);
        }
        Ok(Json::Array(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Json, A::Error> {
        let mut members: Vec<(String, Json)> = Vec::new();
        while let Some((key, value)) = access.next_entry::<String, Json>()? {
            if members.len() >= MEMBERS_MAX {
                return Err(A::Error::custom("too many members in one object"));
            }
            match members.iter_mut().find(|(name, _)| *name == key) {
                Some(member) => member.1 = value,
                None => members.push((key, value)),
            }
        }
        Ok(Json::Object(members))
    }
}

/// The maximum number of members. Repeated keys are searched one by one, which must not become
/// quadratic for a hostile body.
const MEMBERS_MAX: usize = 10_000;

/// Writes `"key":value` pairs without the braces around them.
pub(super) fn write_members(members: &[(String, Json)], out: &mut Vec<u8>) {
    for (index, (key, value)) in members.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_string(key, out);
        out.push(b':');
        value.write(out);
    }
}

/// Writes a string with Go's escapes: also `<`, `>`, `&`, U+2028 and U+2029 (S-LIST-66).
fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for character in text.chars() {
        match character {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            '\u{8}' => out.extend_from_slice(b"\\b"),
            '\u{c}' => out.extend_from_slice(b"\\f"),
            '\0'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                out.extend_from_slice(format!("\\u{:04x}", u32::from(character)).as_bytes());
            }
            _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(text: &str) -> String {
        String::from_utf8(Json::parse(text.as_bytes()).expect("JSON").to_bytes()).expect("UTF-8")
    }

    #[test]
    fn keys_keep_their_order_and_go_escapes_are_written() {
        for (given, expected) in [
            (r#"{"b":1,"a":[true,null,-2,1.5]}"#, r#"{"b":1,"a":[true,null,-2,1.5]}"#),
            (r#""a<b>&\u2028 é\u0001\/""#, r#""a\u003cb\u003e\u0026\u2028 é\u0001/""#),
            (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
        ] {
            assert_eq!(round_trip(given), expected);
        }
    }

    #[test]
    fn sorting_includes_nested_arrays_and_objects() {
        let mut value = Json::parse(br#"{"b":[{"d":1,"c":2}],"a":0}"#).expect("JSON");
        value.sort_keys();
        assert_eq!(value.to_bytes(), br#"{"a":0,"b":[{"c":2,"d":1}]}"#);
    }

    #[test]
    fn members_are_set_in_place_and_removed() {
        let mut value = Json::parse(br#"{"a":1,"b":2}"#).expect("JSON");
        value.set("a", "x");
        value.entry("c").set("d", true);
        assert_eq!(value.remove("b"), Some(Json::from(2)));
        assert_eq!(value.to_bytes(), br#"{"a":"x","c":{"d":true}}"#);
    }
}
