//! Tables as the apiserver prints them: around the rows, and each row for what a client wants of
//! its object. Pure.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    columns::Columns,
    human::Moment,
    packed::Packed,
    proof::{Window, prove},
    row::Parts,
};
use crate::{
    api::{
        GroupVersionResource,
        field::is_built_in_group,
        media::{Include, MetadataVersion, Table},
        version::ResourceVersion,
    },
    cache::{
        envelope::{EnvelopeError, Style},
        metadata,
        portion::ListMeta,
    },
};

/// The form of one resource's Tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableEnvelope {
    /// The definitions of the columns, as printed.
    definitions: Box<str>,
    columns: Columns,
    style: Style,
    api_version: Box<str>,
}

/// A Table whose rows are not parsed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Outer<'a> {
    #[serde(borrow)]
    metadata: OuterMetadata<'a>,
    #[serde(borrow)]
    column_definitions: Option<&'a RawValue>,
    #[serde(borrow)]
    rows: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OuterMetadata<'a> {
    resource_version: &'a str,
}

/// The text after the rows.
const TRAILER: &str = "]}\n";

/// The object of a row without one.
const NO_OBJECT: &str = "null";

// === impl TableEnvelope ===

impl TableEnvelope {
    /// Learns from the text before the first row and after the last one.
    pub fn learn(
        header: &str,
        trailer: &str,
        resource: &GroupVersionResource,
    ) -> Result<(Self, ResourceVersion), EnvelopeError> {
        let text = format!("{header}{trailer}");
        let outer: Outer<'_> = serde_json::from_str(&text).map_err(EnvelopeError::Malformed)?;
        let version = ResourceVersion::parse(outer.metadata.resource_version)
            .map_err(|_| EnvelopeError::Version)?;
        let definitions = outer.column_definitions.ok_or(EnvelopeError::NotUnderstood)?.get();
        let columns = Columns::parse(definitions, resource).ok_or(EnvelopeError::NotUnderstood)?;
        let style = match is_built_in_group(&resource.group) {
            true => Style::Typed,
            false => Style::Custom,
        };
        let api_version = resource.api_version().into();
        let envelope = Self { definitions: definitions.into(), columns, style, api_version };
        let is_empty = outer.rows.is_none();
        let meta = ListMeta::whole(&version);
        let start = envelope.header(&meta, MetadataVersion::V1, true, is_empty);
        let expected = format!("{start}{}", envelope.trailer(is_empty));
        if text == expected { Ok((envelope, version)) } else { Err(EnvelopeError::NotUnderstood) }
    }

    /// Returns the family of the objects' printers.
    pub fn style(&self) -> Style {
        self.style
    }

    /// Returns the apiVersion of the objects.
    pub fn api_version(&self) -> &str {
        &self.api_version
    }

    /// Returns the name of a column.
    pub fn column(&self, index: usize) -> &str {
        self.columns.columns.get(index).map_or("", |column| &column.name)
    }

    /// Packs a row that arrived within a window of time; `None` if it has an unknown form.
    pub fn pack(&self, row: &str, window: Window) -> Option<Vec<u8>> {
        let parts = Parts::of(row)?;
        let proven = prove(row, &parts, &self.columns, window);
        Packed::pack(row, &parts, proven.as_deref().map_err(|unproven| *unproven))
    }

    /// Returns the text before the first row.
    pub fn header(
        &self,
        meta: &ListMeta<'_>,
        table: MetadataVersion,
        with_columns: bool,
        is_empty: bool,
    ) -> String {
        let head = metadata::head("Table", table);
        let definitions = if with_columns { &*self.definitions } else { "null" };
        let rows = if self.prints_null(is_empty) { "null" } else { "[" };
        let (version, more) = (meta.version, meta.members());
        format!(
            r#"{head}"metadata":{{"resourceVersion":"{version}"{more}}},"columnDefinitions":{definitions},"rows":{rows}"#
        )
    }

    /// Returns the text after the last row.
    pub fn trailer(&self, is_empty: bool) -> &'static str {
        if self.prints_null(is_empty) { &TRAILER[1..] } else { TRAILER }
    }

    fn prints_null(&self, is_empty: bool) -> bool {
        is_empty && self.columns.prints_null
    }

    /// Appends a packed row as it reads at a moment; `None` if it cannot be printed, or a cell is
    /// not proven.
    pub fn write_row(
        &self,
        packed: &[u8],
        table: Table,
        now: Moment,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let row = Packed::of(packed)?;
        if row.unproven().is_some() {
            return None;
        }
        let before = row.before_object()?;
        let mut done = 0;
        for age in row.ages() {
            out.extend_from_slice(before.get(done..age.start as usize)?);
            age.write(out, now);
            done = age.end as usize;
        }
        out.extend_from_slice(before.get(done..)?);
        match table.include {
            Include::None => out.extend_from_slice(NO_OBJECT.as_bytes()),
            Include::Object => out.extend_from_slice(row.object()?),
            Include::Metadata => self.write_metadata(row, table.version, out)?,
        }
        out.push(b'}');
        Some(())
    }

    fn write_metadata(
        &self,
        row: Packed<'_>,
        version: MetadataVersion,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        match self.style {
            Style::Custom => {
                let partial = metadata::partial(row.object()?, self.style, version)?;
                out.extend_from_slice(partial.as_bytes());
            }
            Style::Typed => {
                let head = metadata::head("PartialObjectMetadata", version);
                let own = row.metadata()?;
                for part in [head.as_bytes(), br#""metadata":"#, own, b"}"] {
                    out.extend_from_slice(part);
                }
            }
        }
        Some(())
    }

    /// Returns a moment before which no cell of a packed row changes.
    pub fn alike_until(&self, packed: &[u8], now: Moment) -> Option<Moment> {
        Packed::of(packed)?.ages().map(|age| age.alike_until(now)).min()
    }

    /// Returns the row of a watch event's Table; `None` if the Table has another form, or other
    /// columns.
    pub fn row_of<'a>(&self, event: &'a str) -> Option<&'a str> {
        let outer: Outer<'a> = serde_json::from_str(event).ok()?;
        let version = ResourceVersion::parse(outer.metadata.resource_version).ok()?;
        let [row] = outer.rows.as_deref()? else { return None };
        let header = self.header_of(&outer, &version)?;
        let rest = event.strip_prefix(&*header)?.strip_prefix(row.get())?;
        (rest == "]}").then_some(row.get())
    }

    /// Reports whether the Table of a watch event has other columns.
    pub fn has_other_columns(&self, event: &str) -> bool {
        let outer: Result<Outer<'_>, _> = serde_json::from_str(event);
        let definitions = outer.ok().and_then(|outer| outer.column_definitions);
        definitions.is_some_and(|definitions| *definitions.get() != *self.definitions)
    }

    fn header_of(&self, outer: &Outer<'_>, version: &ResourceVersion) -> Option<String> {
        let with_columns = match outer.column_definitions {
            Some(definitions) if *definitions.get() == *self.definitions => true,
            None => false,
            Some(_) => return None,
        };
        Some(self.header(&ListMeta::whole(version), MetadataVersion::V1, with_columns, false))
    }
}

/// Returns the object's text in a packed row.
pub fn object_of(packed: &[u8]) -> Option<&str> {
    str::from_utf8(Packed::of(packed)?.object()?).ok()
}

/// Returns the column of the first cell of a packed row that is not proven.
pub fn unproven_column(packed: &[u8]) -> Option<usize> {
    Packed::of(packed)?.unproven()
}

/// Returns the text of a packed row before its object, if no cell changes with time.
pub fn fixed_start(packed: &[u8]) -> Option<&str> {
    let row = Packed::of(packed).filter(|row| row.unproven().is_none())?;
    let start = row.before_object().filter(|_| row.ages().next().is_none())?;
    str::from_utf8(start).ok()
}

/// Returns a packed row with another version in its object.
pub fn raw_at(packed: &[u8], version: &ResourceVersion) -> Option<Vec<u8>> {
    Packed::of(packed)?.at_version(version)
}

#[cfg(test)]
#[path = "print/tests.rs"]
mod tests;
