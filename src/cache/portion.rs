//! A part of a list: the objects after a key, up to a limit, and the token of the next page. Pure.
//!
//! A portion selects objects and completes a list's metadata. It does not depend on the form in
//! which they are printed.

use std::sync::Arc;

use super::{
    envelope::{JsonEnvelope, Style},
    selection::Selection,
    store::Snapshot,
};
use crate::api::{query::Query, version::ResourceVersion};

/// A part of the objects that a query selects. The default is all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Portion {
    /// The key after which it begins.
    pub after: Option<Arc<str>>,
    /// Its end, if objects follow.
    pub next: Option<Next>,
}

/// The end of a page that is not the last one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Next {
    /// The number of objects in the page.
    pub limit: usize,
    /// The token of the next page.
    pub token: Arc<str>,
    /// The number of objects that follow, if the query has no selectors (S-LIST-52).
    pub remaining: Option<u64>,
}

/// The metadata of a printed list.
pub struct ListMeta<'a> {
    /// The version.
    pub version: &'a ResourceVersion,
    /// The end of the page, if it is not the last one.
    pub next: Option<&'a Next>,
}

/// The end of the metadata in a typed list's header.
const TYPED_END: &str = r#"},"items":["#;

/// The member of a custom list's metadata in place of a token.
const NO_TOKEN: &str = r#""continue":"""#;

// === impl Portion ===

impl Portion {
    /// Returns the objects of this part, in LIST order.
    pub fn select<'a>(&self, snapshot: &'a Snapshot, query: &Query) -> Selection<'a> {
        let mut selection = snapshot.select(query);
        if let Some(after) = &self.after {
            selection = selection.after(after);
        }
        match &self.next {
            Some(next) => selection.first(next.limit),
            None => selection,
        }
    }

    /// Returns the metadata of the printed list.
    pub(super) fn meta<'a>(&'a self, version: &'a ResourceVersion) -> ListMeta<'a> {
        ListMeta { version, next: self.next.as_ref() }
    }
}

// === impl ListMeta ===

impl<'a> ListMeta<'a> {
    /// Returns the metadata of a whole list.
    pub(super) fn whole(version: &'a ResourceVersion) -> Self {
        Self { version, next: None }
    }

    /// Returns the members that follow resourceVersion in the metadata of a typed list in JSON.
    pub(super) fn members(&self) -> String {
        self.next.map_or_else(String::new, |next| format!(",{}", next.members()))
    }

    /// Returns the text around the items of a list in JSON.
    pub(super) fn json_ends(&self, envelope: &JsonEnvelope) -> (String, String) {
        let (mut header, mut trailer) =
            (envelope.header(self.version), envelope.trailer(self.version));
        if let Some(next) = self.next {
            match envelope.style() {
                Style::Typed => {
                    let place = header.len().saturating_sub(TYPED_END.len());
                    header.insert_str(place, &self.members());
                }
                Style::Custom => trailer = trailer.replacen(NO_TOKEN, &next.members(), 1),
            }
        }
        (header, trailer)
    }
}

// === impl Next ===

impl Next {
    /// Returns the members of the list's metadata, in the order of both families.
    fn members(&self) -> String {
        let token = format!(r#""continue":"{}""#, self.token);
        match self.remaining {
            Some(remaining) => format!(r#"{token},"remainingItemCount":{remaining}"#),
            None => token,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::{GroupVersionResource, Scope},
        cache::testing::pods,
    };

    fn next(limit: usize, remaining: Option<u64>) -> Option<Next> {
        Some(Next { limit, token: "abc".into(), remaining })
    }

    #[test]
    fn portions_divide_a_list_without_gap_or_repetition() {
        const NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];
        let objects = NAMES.map(|name| ("x", name, "u", 1, "web"));
        let snapshot = pods(7, &objects);
        let query = Query::all(GroupVersionResource::new("", "v1", "pods"), Scope::All);
        for limit in 1..=NAMES.len() {
            let (mut after, mut seen) = (None::<Arc<str>>, Vec::new());
            loop {
                let page = Portion { after: after.clone(), next: next(limit, None) };
                let selection = page.select(&snapshot, &query);
                let keys: Vec<_> = selection.iter().map(|object| object.key().clone()).collect();
                assert_eq!(keys.len(), selection.len());
                let Some(last) = keys.last() else { break };
                after = Some(last.as_str().into());
                seen.extend(keys.iter().map(|key| key.name().to_owned()));
            }
            assert_eq!(seen, NAMES, "pages of {limit}");
        }
        let rest = Portion { after: Some("x/ee".into()), next: None };
        assert_eq!(rest.select(&snapshot, &query).len(), 2);
        let rest = Portion { after: Some("y".into()), next: None };
        assert!(rest.select(&snapshot, &query).is_empty());
    }

    #[test]
    fn the_token_is_printed_where_the_apiserver_prints_it() {
        let version = ResourceVersion::parse("7").expect("a version");
        let typed =
            r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":["#;
        let custom = "],\"kind\":\"ThingList\",\"metadata\":{\"continue\":\"\",\"resourceVersion\":\"7\"}}\n";
        let of = |header, trailer| JsonEnvelope::learn(header, trailer).expect("understood").0;
        let (typed, custom) = (of(typed, "]}\n"), of(r#"{"apiVersion":"a/v1","items":["#, custom));
        for (remaining, members) in
            [(None, r#""continue":"abc""#), (Some(3), r#""continue":"abc","remainingItemCount":3"#)]
        {
            let portion = Portion { after: None, next: next(2, remaining) };
            let (header, trailer) = portion.meta(&version).json_ends(&typed);
            let expected = format!(
                r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"7",{members}}},"items":["#
            );
            assert_eq!((header, &*trailer), (expected, "]}\n"));
            let (_, trailer) = portion.meta(&version).json_ends(&custom);
            let expected = format!(
                "],\"kind\":\"ThingList\",\"metadata\":{{{members},\"resourceVersion\":\"7\"}}}}\n"
            );
            assert_eq!(trailer, expected);
        }
        let whole = Portion::default().meta(&version).json_ends(&custom);
        assert_eq!(whole, (custom.header(&version), custom.trailer(&version)));
    }
}
