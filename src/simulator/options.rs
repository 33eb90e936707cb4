//! List and watch options: decoded and checked (S-LIST-01..09, S-WATCH-01..10).

use std::time::Duration;

use super::{
    Features,
    kind::ResourceType,
    object::Object,
    route::{Parameters, Target},
    status::{FieldFault, StatusFailure},
};
use crate::api::selector::{FieldSelector, LabelSelector};

/// The objects that a request selects.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    namespace: Option<String>,
    name: Option<String>,
    labels: Option<LabelSelector>,
    fields: Option<FieldSelector>,
}

/// ListOptions that passed the apiserver's checks.
#[derive(Clone, Debug)]
pub(super) struct ListOptions {
    /// The namespace, name and selectors.
    pub filter: Filter,
    /// `resourceVersion` as given.
    pub resource_version: String,
    /// `resourceVersionMatch`.
    pub version_match: Match,
    /// `limit`. Zero if absent or negative.
    pub limit: usize,
    /// `continue` as given.
    pub continue_token: String,
    /// `timeoutSeconds`.
    pub timeout_seconds: Option<i64>,
    /// `allowWatchBookmarks`.
    pub bookmarks: bool,
    /// `sendInitialEvents`, with the server's default.
    pub send_initial_events: Option<bool>,
}

/// `resourceVersionMatch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    /// Not given.
    Unset,
    /// `Exact`.
    Exact,
    /// `NotOlderThan`.
    NotOlderThan,
}

/// The request that options belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A LIST, or a DELETE of a collection.
    List,
    /// A WATCH.
    Watch,
}

// === impl Filter ===

impl Filter {
    /// Reports whether the filter selects an object.
    pub(super) fn selects(&self, object: &Object) -> bool {
        self.namespace.as_deref().is_none_or(|wanted| object.key.namespace() == Some(wanted))
            && self.name.as_deref().is_none_or(|wanted| object.key.name() == wanted)
            && self.labels.as_ref().is_none_or(|selector| selector.matches(object))
            && self.fields.as_ref().is_none_or(|selector| selector.matches(object))
    }

    /// Reports whether there is no selector.
    pub(super) fn selects_all(&self) -> bool {
        self.labels.is_none() && self.fields.is_none() && self.name.is_none()
    }

    /// Reports whether the field selector names an object.
    pub(super) fn pins_name(&self) -> bool {
        self.fields.as_ref().is_some_and(|fields| fields.pinned("metadata.name").is_some())
    }

    /// Returns the namespace of the path.
    pub(super) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }
}

// === impl ListOptions ===

impl ListOptions {
    /// Decodes and checks options, in the server's order of checks.
    pub(super) fn parse(
        kind: &ResourceType,
        target: &Target,
        parameters: &Parameters,
        purpose: Purpose,
        features: Features,
    ) -> Result<Self, StatusFailure> {
        let value = |key: &str| parameters.value(key).unwrap_or_default();
        let labels = non_empty(value("labelSelector"))
            .map(|text| LabelSelector::parse(text).map_err(|error| bad(&error)))
            .transpose()?;
        let fields = non_empty(value("fieldSelector"))
            .map(|text| FieldSelector::parse(text).map_err(|error| bad(&error)))
            .transpose()?;
        let limit = integer(parameters, "limit")?.unwrap_or(0);
        let timeout_seconds = integer(parameters, "timeoutSeconds")?;
        let mut raw = Raw {
            version: value("resourceVersion"),
            version_match: value("resourceVersionMatch"),
            continue_token: value("continue"),
            send_initial_events: parameters.flag("sendInitialEvents"),
            purpose,
            features,
        };
        raw.set_defaults();
        raw.check()?;
        if let Some(selector) = &fields {
            check_fields(kind, selector)?;
        }
        let name = target.watch_prefix.then(|| target.name.clone()).flatten();
        let namespaced = kind.namespaced.then(|| target.namespace.clone()).flatten();
        Ok(Self {
            filter: Filter { namespace: namespaced, name, labels, fields },
            resource_version: raw.version.to_owned(),
            version_match: match raw.version_match {
                "Exact" => Match::Exact,
                "NotOlderThan" => Match::NotOlderThan,
                _ => Match::Unset,
            },
            limit: usize::try_from(limit).unwrap_or(0),
            continue_token: raw.continue_token.to_owned(),
            timeout_seconds,
            bookmarks: parameters.flag("allowWatchBookmarks").unwrap_or(false),
            send_initial_events: raw.send_initial_events,
        })
    }

    /// Returns the version as a number. `None` if absent. A list and a watch report an invalid one
    /// differently (S-LIST-08).
    pub(super) fn version(&self, purpose: Purpose) -> Result<Option<u64>, StatusFailure> {
        if self.resource_version.is_empty() {
            return Ok(None);
        }
        parse_version(&self.resource_version, purpose).map(Some)
    }
}

struct Raw<'a> {
    version: &'a str,
    version_match: &'a str,
    continue_token: &'a str,
    send_initial_events: Option<bool>,
    purpose: Purpose,
    features: Features,
}

// === impl Raw ===

impl Raw<'_> {
    /// Turns old-style watches into WatchList ones if that is enabled (S-WATCH-01, 02).
    fn set_defaults(&mut self) {
        let old_style = self.purpose == Purpose::Watch
            && self.features.watch_list
            && self.send_initial_events.is_none()
            && self.version_match.is_empty()
            && matches!(self.version, "" | "0");
        if old_style {
            self.send_initial_events = Some(true);
            self.version_match = "NotOlderThan";
        }
    }

    fn check(&self) -> Result<(), StatusFailure> {
        let faults = match self.purpose {
            Purpose::List => self.list_faults(),
            Purpose::Watch => self.watch_faults(),
        };
        if !faults.is_empty() {
            return Err(StatusFailure::invalid("meta.k8s.io", "ListOptions", "", &faults));
        }
        Ok(())
    }

    fn list_faults(&self) -> Vec<FieldFault> {
        let mut faults = Vec::new();
        let forbidden = |why: &str| FieldFault::forbidden(MATCH, why);
        if !self.version_match.is_empty() {
            if self.version.is_empty() {
                faults.push(forbidden(
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                ));
            }
            if !self.continue_token.is_empty() {
                faults
                    .push(forbidden("resourceVersionMatch is forbidden when continue is provided"));
            }
            if !matches!(self.version_match, "Exact" | "NotOlderThan") {
                let supported = ["Exact", "NotOlderThan", ""];
                faults.push(FieldFault::unsupported(MATCH, self.version_match, &supported));
            }
            if self.version_match == "Exact" && self.version == "0" {
                faults.push(forbidden(
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                ));
            }
        }
        if self.send_initial_events.is_some() {
            let why = "sendInitialEvents is forbidden for list";
            faults.push(FieldFault::forbidden("sendInitialEvents", why));
        }
        faults
    }

    fn watch_faults(&self) -> Vec<FieldFault> {
        let mut faults = Vec::new();
        let forbidden = |why: &str| FieldFault::forbidden(MATCH, why);
        if self.send_initial_events.is_some() {
            if self.version_match != "NotOlderThan" {
                faults.push(forbidden(
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                ));
            }
            if !self.features.watch_list {
                let why = "sendInitialEvents is forbidden for watch unless the WatchList feature \
                           gate is enabled";
                faults.push(FieldFault::forbidden("sendInitialEvents", why));
            }
        }
        if !self.version_match.is_empty() {
            if self.send_initial_events.is_none() {
                faults.push(forbidden(
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is \
                     provided",
                ));
            }
            if self.version_match != "NotOlderThan" {
                faults.push(FieldFault::unsupported(MATCH, self.version_match, &["NotOlderThan"]));
            }
            if !self.continue_token.is_empty() {
                faults
                    .push(forbidden("resourceVersionMatch is forbidden when continue is provided"));
            }
        }
        faults
    }
}

const MATCH: &str = "resourceVersionMatch";

/// Parses a version. Leading zeros are accepted, more than 64 bits are not (S-LIST-08).
pub(super) fn parse_version(text: &str, purpose: Purpose) -> Result<u64, StatusFailure> {
    let cause = match text.parse::<u64>() {
        Ok(version) if text.bytes().all(|byte| byte.is_ascii_digit()) => return Ok(version),
        Err(error) if *error.kind() == std::num::IntErrorKind::PosOverflow => "value out of range",
        _ => "invalid syntax",
    };
    let text = format!("{text:?}");
    let fault = format!("Invalid value: {text}: strconv.ParseUint: parsing {text}: {cause}");
    Err(match purpose {
        Purpose::List => StatusFailure::bad_request(format!(
            "invalid resource version: resourceVersion: {fault}"
        )),
        Purpose::Watch => StatusFailure::internal(format!("resourceVersion: {fault}")),
    })
}

/// The minimum duration of a watch without `timeoutSeconds` (S-WATCH-12).
pub(super) const WATCH_DURATION_MIN: Duration = Duration::from_secs(1800);

fn non_empty(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

fn bad(error: &crate::api::selector::SelectorError) -> StatusFailure {
    StatusFailure::bad_request(error.to_string())
}

fn integer(parameters: &Parameters, key: &str) -> Result<Option<i64>, StatusFailure> {
    let Some(text) = parameters.value(key) else { return Ok(None) };
    text.parse().map(Some).map_err(|_| {
        StatusFailure::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))
    })
}

fn check_fields(kind: &ResourceType, selector: &FieldSelector) -> Result<(), StatusFailure> {
    match selector.paths().find_map(|path| kind.field_fault(path)) {
        Some(message) => Err(StatusFailure::bad_request(message)),
        None => Ok(()),
    }
}
