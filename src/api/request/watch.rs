//! The options of a WATCH as the apiserver decodes and checks them (S-WATCH-01..12).
//!
//! Nothing is refused here: a request that the apiserver would refuse has a reason to forward it.

use std::time::Duration;

use super::{
    super::version::VersionMatch,
    NotModelled, Start, Watch,
    parameters::{Parameter, Parameters},
    path::Path,
    read,
};

/// Parses the options of a request whose path and method are those of a plain WATCH.
pub(super) fn watch(path: &Path, parameters: &Parameters<'_>) -> Result<Watch, NotModelled> {
    parameters.check()?;
    let include = read::include_object(parameters)?;
    if parameters.get_set(Parameter::Continue).is_some() {
        return Err(NotModelled::Continue);
    }
    // It is ignored, but refused if it is not a number.
    read::integer(parameters, Parameter::Limit)?;
    let version = match parameters.get_set(Parameter::ResourceVersion) {
        None => VersionMatch::MostRecent,
        Some("0") => VersionMatch::Any,
        Some(text) => VersionMatch::NotOlderThan(read::version(text)?),
    };
    let start = start(parameters, &version)?;
    let (labels, fields) = read::selectors(path, parameters)?;
    Ok(Watch {
        query: read::query(path, labels, fields),
        version,
        start,
        bookmarks: parameters.flag(Parameter::AllowWatchBookmarks),
        include,
        timeout: timeout(parameters)?,
    })
}

/// Returns the start by the table S-WATCH-01..09. Old-style watches get the defaults of servers
/// with WatchList. On other servers, they lack only the marker at the end of the initial events.
fn start(parameters: &Parameters<'_>, version: &VersionMatch) -> Result<Start, NotModelled> {
    let matching = parameters.get_set(Parameter::ResourceVersionMatch);
    match (parameters.get(Parameter::SendInitialEvents), matching) {
        (None, None) if matches!(version, VersionMatch::NotOlderThan(_)) => Ok(Start::Events),
        (None, None) => Ok(Start::State),
        (Some("true" | "1"), Some("NotOlderThan")) => Ok(Start::State),
        (Some("false" | "0"), Some("NotOlderThan")) => Ok(Start::Events),
        (Some("true" | "1" | "false" | "0"), _) | (None, Some(_)) => {
            Err(NotModelled::IllegalCombination)
        }
        (Some(_), _) => Err(NotModelled::BadValue),
    }
}

/// The longest timeout of which the apiserver can count the nanoseconds, in seconds.
const SECONDS_MAX: u64 = i64::MAX as u64 / 1_000_000_000;

/// Parses the timeout: zero lets the server decide, and a negative number means no watch
/// (S-WATCH-12).
fn timeout(parameters: &Parameters<'_>) -> Result<Option<Duration>, NotModelled> {
    let Some(seconds) = read::integer(parameters, Parameter::TimeoutSeconds)? else {
        return Ok(None);
    };
    let seconds = u64::try_from(seconds).map_err(|_| NotModelled::BadValue)?;
    if seconds > SECONDS_MAX {
        return Err(NotModelled::BadValue);
    }
    Ok((seconds > 0).then(|| Duration::from_secs(seconds)))
}

// === impl Watch ===

impl Watch {
    /// Reports whether it begins with the newest state, as a LIST without resourceVersion does.
    pub fn begins_with_newest(&self) -> bool {
        self.start == Start::State && self.version == VersionMatch::MostRecent
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Method};

    use super::{
        super::{RequestInfo, ResourceRequest},
        *,
    };
    use crate::api::version::ResourceVersion;

    fn parsed(query: &str) -> ResourceRequest {
        let uri = format!("/api/v1/namespaces/n/pods?watch=1&{query}").parse().expect("a URI");
        match RequestInfo::parse(&Method::GET, &uri, &HeaderMap::new()) {
            RequestInfo::Resource(request) => request,
            RequestInfo::NonResource(_) => panic!("a resource"),
        }
    }

    fn understood(query: &str) -> Watch {
        let request = parsed(query);
        assert!(!request.rewritable);
        assert_eq!(request.read, Err(NotModelled::Watch));
        request.watch.unwrap_or_else(|| panic!("{query} is not understood"))
    }

    #[test]
    fn a_watch_starts_as_on_the_apiserver() {
        let at = |version: &str| {
            VersionMatch::NotOlderThan(ResourceVersion::parse(version).expect("a version"))
        };
        let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        let none = "sendInitialEvents=0&resourceVersionMatch=NotOlderThan";
        let rows = [
            (String::new(), VersionMatch::MostRecent, Start::State),
            ("resourceVersion=&limit=5&continue=".into(), VersionMatch::MostRecent, Start::State),
            ("resourceVersion=0".into(), VersionMatch::Any, Start::State),
            ("resourceVersion=7".into(), at("7"), Start::Events),
            (initial.into(), VersionMatch::MostRecent, Start::State),
            (format!("{initial}&resourceVersion=0"), VersionMatch::Any, Start::State),
            (format!("{initial}&resourceVersion=7"), at("7"), Start::State),
            (none.into(), VersionMatch::MostRecent, Start::Events),
            (format!("{none}&resourceVersion=0"), VersionMatch::Any, Start::Events),
            (format!("{none}&resourceVersion=7"), at("7"), Start::Events),
        ];
        for (query, version, start) in rows {
            let watch = understood(&query);
            assert_eq!((watch.version, watch.start), (version, start), "{query}");
        }
    }

    #[test]
    fn bookmarks_and_the_timeout_are_parsed() {
        let watch = understood("allowWatchBookmarks=true&timeout=7m5s&timeoutSeconds=425");
        assert!(watch.bookmarks);
        assert_eq!(watch.timeout, Some(Duration::from_secs(425)));
        assert!(parsed("timeoutSeconds=9223372036").watch.is_some());
        assert!(parsed("timeoutSeconds=9223372037").watch.is_none());
        let watch = understood("allowWatchBookmarks=false&timeoutSeconds=0&pretty=true");
        assert!(!watch.bookmarks);
        assert_eq!(watch.timeout, None);
    }

    #[test]
    fn refused_and_unknown_parameters_are_not_modelled() {
        let rows = [
            ("sendInitialEvents=true", NotModelled::IllegalCombination),
            ("sendInitialEvents=1&resourceVersionMatch=Exact", NotModelled::IllegalCombination),
            ("resourceVersionMatch=NotOlderThan", NotModelled::IllegalCombination),
            ("sendInitialEvents=yes&resourceVersionMatch=NotOlderThan", NotModelled::BadValue),
            ("resourceVersion=x", NotModelled::BadVersion),
            ("resourceVersion=007", NotModelled::BadVersion),
            ("resourceVersion=18446744073709551616", NotModelled::BadVersion),
            ("timeoutSeconds=-1", NotModelled::BadValue),
            ("timeoutSeconds=x", NotModelled::BadValue),
            ("timeout=x", NotModelled::BadValue),
            ("limit=x", NotModelled::BadValue),
            ("continue=x", NotModelled::Continue),
            ("labelSelector=a%20b", NotModelled::BadSelector),
            ("fieldSelector=spec.hostname%3Dx", NotModelled::UnmodelledField),
            ("includeObject=x", NotModelled::BadValue),
            ("new=1", NotModelled::UnknownParameter),
            ("watch=1", NotModelled::RepeatedParameter),
        ];
        for (query, why) in rows {
            let request = parsed(query);
            assert_eq!((request.read, request.watch), (Err(why), None), "{query}");
        }
    }
}
