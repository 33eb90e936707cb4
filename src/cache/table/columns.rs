//! The columns of a Table, and the rule of each for cells that change with time alone. Pure.
//!
//! The rules are those of the printers of Kubernetes 1.30 to 1.36. A rule is only a claim: each row
//! must prove it when it arrives. An unknown column has the rule [`Rule::Watched`].

use std::borrow::Cow;

use serde::Deserialize;

use crate::api::{GroupVersionResource, field::is_built_in_group};

/// The columns of one resource's Table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    /// The columns, in order.
    pub columns: Vec<Column>,
    /// `true` if the printer prints `null` for no rows.
    pub prints_null: bool,
}

/// One column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    /// The name, for metrics.
    pub name: Box<str>,
    /// The rule of its cells.
    pub rule: Rule,
}

/// The rule of a column's cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// The cells never change with time.
    Fixed,
    /// The cells tell the time since a timestamp of the object.
    Since(Source),
    /// No rule is known. A cell that looks like a time is not proven.
    Watched,
    /// As [`Rule::Watched`], but a text that the object itself contains does not change with time.
    Copied,
}

/// The timestamp that a cell counts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// `metadata.creationTimestamp`.
    Created,
    /// The last restart of a pod's containers, in brackets after their number.
    Restarts,
    /// A job's start, until its completion.
    JobStart,
    /// `status.lastScheduleTime`.
    LastSchedule,
    /// The first occurrence of an event.
    FirstSeen,
    /// The last occurrence of an event.
    LastSeen,
    /// The completion of a request for the state of device pools.
    PoolsCompleted,
    /// The addition of a device's taint.
    TaintAdded,
    /// A timestamp of a custom resource, at this path of keys if the column shows it.
    Date(Option<Box<[Box<str>]>>),
}

/// A column as the apiserver defines it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Definition<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    #[serde(borrow)]
    format: Cow<'a, str>,
    #[serde(borrow)]
    description: Cow<'a, str>,
    #[serde(rename = "priority")]
    _priority: i32,
}

/// The description that the apiserver makes for a custom column without one.
const PATH_SHOWN: &str = "Custom resource definition column (in JSONPath format): ";

/// The group whose printer sends the columns with every event.
const COLUMNS_ALWAYS: &str = "apiregistration.k8s.io";

// === impl Columns ===

impl Columns {
    /// Parses the definitions of a resource's columns; `None` if its printer is unknown: that of an
    /// aggregated API may print anything.
    pub(super) fn parse(definitions: &str, resource: &GroupVersionResource) -> Option<Self> {
        let definitions: Vec<Definition<'_>> = serde_json::from_str(definitions).ok()?;
        let is_built_in = is_built_in_group(&resource.group);
        // The default of types without a printer. A custom resource's column of this name is an age.
        let is_default = is_built_in
            && matches!(
                &*definitions,
                [name, created] if name.is_name() && created.name == "Created At" && created.r#type == "date"
            );
        if definitions.is_empty() || (!is_built_in && !definitions[0].is_name()) {
            return None;
        }
        let columns = definitions.iter().enumerate().map(|(index, definition)| Column {
            name: (&*definition.name).into(),
            rule: match is_built_in {
                _ if is_default => Rule::Fixed,
                true => definition.built_in(&resource.group, &resource.resource),
                false if index == 0 => Rule::Fixed,
                false => definition.custom(),
            },
        });
        Some(Self { columns: columns.collect(), prints_null: is_default })
    }
}

/// Reports whether watches of a group can be answered: their first event has the columns, and no
/// other.
pub fn has_columns_once(group: &str) -> bool {
    group != COLUMNS_ALWAYS
}

// === impl Definition ===

impl Definition<'_> {
    fn is_name(&self) -> bool {
        self.name == "Name" && self.r#type == "string" && self.format == "name"
    }

    fn built_in(&self, group: &str, resource: &str) -> Rule {
        let source = match (group, resource, &*self.name) {
            _ if self.format == "name" => return Rule::Fixed,
            ("certificates.k8s.io", "certificatesigningrequests", "RequestedDuration") => {
                return Rule::Fixed;
            }
            ("", "pods", "Restarts") => Source::Restarts,
            ("batch", "jobs", "Duration") => Source::JobStart,
            ("batch", "cronjobs", "Last Schedule") => Source::LastSchedule,
            ("" | "events.k8s.io", "events", "Last Seen") => Source::LastSeen,
            ("" | "events.k8s.io", "events", "First Seen") => Source::FirstSeen,
            ("resource.k8s.io", "resourcepoolstatusrequests", "Completed") => {
                Source::PoolsCompleted
            }
            ("resource.k8s.io", "devicetaintrules", "TimeAdded") => Source::TaintAdded,
            (_, _, "Age") => Source::Created,
            _ => return Rule::Watched,
        };
        Rule::Since(source)
    }

    fn custom(&self) -> Rule {
        match &*self.r#type {
            "date" => Rule::Since(Source::Date(self.path())),
            // The printer converts each value to its type: no text can be in such a cell.
            "integer" | "number" | "boolean" => Rule::Fixed,
            _ => Rule::Copied,
        }
    }

    /// Returns the column's path, if its description shows it and it consists of plain keys.
    fn path(&self) -> Option<Box<[Box<str>]>> {
        let path = self.description.strip_prefix(PATH_SHOWN)?.strip_prefix('.')?;
        let is_plain = |key: &str| {
            let is_of_key = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
            !key.is_empty() && key.bytes().all(is_of_key)
        };
        path.split('.').map(|key| is_plain(key).then(|| key.into())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(name: &str, kind: &str, format: &str, description: &str) -> String {
        format!(
            r#"{{"name":"{name}","type":"{kind}","format":"{format}","description":"{description}","priority":0}}"#
        )
    }

    fn rules(group: &str, resource: &str, definitions: &[String]) -> Option<Vec<Rule>> {
        let text = format!("[{}]", definitions.join(","));
        let columns = Columns::parse(&text, &GroupVersionResource::new(group, "v1", resource))?;
        Some(columns.columns.into_iter().map(|column| column.rule).collect())
    }

    fn name() -> String {
        definition("Name", "string", "name", "Name must be unique.")
    }

    #[test]
    fn built_in_columns_have_the_rules_of_their_printers() {
        let text = |name: &str| definition(name, "string", "", "");
        for (group, resource, column, expected) in [
            ("", "pods", "Restarts", Rule::Since(Source::Restarts)),
            ("", "pods", "Age", Rule::Since(Source::Created)),
            ("", "pods", "Status", Rule::Watched),
            ("", "services", "Restarts", Rule::Watched),
            ("batch", "jobs", "Duration", Rule::Since(Source::JobStart)),
            ("batch", "cronjobs", "Last Schedule", Rule::Since(Source::LastSchedule)),
            ("", "events", "Last Seen", Rule::Since(Source::LastSeen)),
            ("events.k8s.io", "events", "First Seen", Rule::Since(Source::FirstSeen)),
            ("certificates.k8s.io", "certificatesigningrequests", "RequestedDuration", Rule::Fixed),
        ] {
            let rules = rules(group, resource, &[name(), text(column)]).expect("columns");
            assert_eq!(rules, [Rule::Fixed, expected], "{resource} {column}");
        }
    }

    #[test]
    fn custom_columns_have_the_rules_of_their_types() {
        let shown = format!("{PATH_SHOWN}.metadata.creationTimestamp");
        let odd = format!("{PATH_SHOWN}.status.conditions[0].time");
        let definitions = [
            name(),
            definition("Age", "date", "", &shown),
            definition("Last", "date", "", &odd),
            definition("Next", "date", "", "The next run."),
            definition("Interval", "string", "", ""),
            definition("Count", "integer", "", ""),
        ];
        let path = ["metadata", "creationTimestamp"].map(Box::from);
        let expected = [
            Rule::Fixed,
            Rule::Since(Source::Date(Some(Box::new(path)))),
            Rule::Since(Source::Date(None)),
            Rule::Since(Source::Date(None)),
            Rule::Copied,
            Rule::Fixed,
        ];
        assert_eq!(rules("a.io", "things", &definitions).expect("columns"), expected);
        assert_eq!(rules("a.io", "things", &definitions[1..]), None, "the first is not the name");
        assert_eq!(rules("a.io", "things", &[]), None);
    }

    #[test]
    fn the_default_columns_never_change() {
        let definitions = format!("[{},{}]", name(), definition("Created At", "date", "", "c"));
        let roles = GroupVersionResource::new("rbac.authorization.k8s.io", "v1", "roles");
        let columns = Columns::parse(&definitions, &roles).expect("columns");
        assert!(columns.prints_null);
        assert!(columns.columns.iter().all(|column| column.rule == Rule::Fixed));
        // A custom resource's column of that name is an age.
        let custom = GroupVersionResource::new("a.io", "v1", "things");
        let columns = Columns::parse(&definitions, &custom).expect("columns");
        assert!(!columns.prints_null);
        assert_eq!(columns.columns[1].rule, Rule::Since(Source::Date(None)));
    }
}
