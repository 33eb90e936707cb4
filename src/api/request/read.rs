//! The options of a GET or LIST as the apiserver decodes and checks them (S-LIST-01..27,
//! S-GET-01..05).
//!
//! Nothing is refused here: a request that the apiserver would refuse has a reason to forward it.

use super::{
    super::{
        ObjectKey,
        continue_token::ContinueToken,
        media::Include,
        query::Query,
        selector::{self, FieldSelector, LabelSelector, NAME_PATH, NAMESPACE_PATH},
        version::{ResourceVersion, VersionMatch},
    },
    NotModelled, Page, Read, Rest,
    parameters::{Parameter, Parameters},
    path::{NAME_BYTES_MAX, Path},
    storage_scope,
};

/// The parameters of a GET. It ignores those of a LIST; Listless forwards them.
const GET_PARAMETERS: [Parameter; 4] =
    [Parameter::IncludeObject, Parameter::Pretty, Parameter::ResourceVersion, Parameter::Timeout];

/// The parameters that a request may have when a resourceVersion is added.
const REWRITABLE_PARAMETERS: [Parameter; 7] = [
    Parameter::AllowWatchBookmarks,
    Parameter::FieldSelector,
    Parameter::IncludeObject,
    Parameter::LabelSelector,
    Parameter::Pretty,
    Parameter::Timeout,
    Parameter::TimeoutSeconds,
];

/// The longest selector that is parsed, in bytes.
const SELECTOR_BYTES_MAX: usize = 4096;

/// The limit of values in a selector that is parsed, in all of its requirements together.
const SELECTOR_VALUES_MAX: usize = 64;

/// Parses the options of a request whose path and method are those of a plain GET or LIST.
pub(super) fn read(path: &Path, parameters: &Parameters<'_>) -> Result<Read, NotModelled> {
    parameters.check()?;
    if path.name.is_some() { get(path, parameters) } else { list(path, parameters) }
}

/// Returns the page of a LIST that continues an earlier one.
pub(super) fn page(path: &Path, parameters: &Parameters<'_>) -> Option<Page> {
    let token = parameters.get_set(Parameter::Continue).filter(|_| path.name.is_none())?;
    let (labels, fields) = parameters.check().and_then(|()| selectors(path, parameters)).ok()?;
    let query = query(path, labels, fields);
    let rest = rest(parameters, &query, token);
    Some(Page { query, token: token.into(), rest })
}

/// Returns the read of a list's rest. The apiserver refuses a version beside the token, and with
/// version 0 it may ignore the limit.
fn rest(parameters: &Parameters<'_>, query: &Query, token: &str) -> Option<Rest> {
    let named =
        [Parameter::ResourceVersion, Parameter::ResourceVersionMatch, Parameter::SendInitialEvents];
    if named.into_iter().any(|parameter| parameters.get(parameter).is_some()) {
        return None;
    }
    let include = include_object(parameters).ok()?;
    integer(parameters, Parameter::TimeoutSeconds).ok()?;
    // A pinned key part changes the prefix of the list's keys.
    if [NAME_PATH, NAMESPACE_PATH].into_iter().any(|path| query.fields.pinned(path).is_some()) {
        return None;
    }
    let token = ContinueToken::decode(token)?;
    let after = match query.scope.namespace() {
        Some(_) if token.after.contains('/') => return None,
        namespace => ObjectKey::new(namespace, &token.after).as_str().into(),
    };
    let read = Read {
        query: query.clone(),
        name: None,
        version: VersionMatch::Exact(token.version),
        limit: limit(parameters).ok()?,
        pretty: parameters.get(Parameter::Pretty).map(str::to_owned),
        include,
    };
    Some(Rest { read, after, form: token.form })
}

/// Returns the limit, if it is above zero.
fn limit(parameters: &Parameters<'_>) -> Result<Option<u64>, NotModelled> {
    let limit = integer(parameters, Parameter::Limit)?;
    Ok(limit.and_then(|limit| u64::try_from(limit).ok()).filter(|limit| *limit > 0))
}

/// Reports whether a resourceVersion may be added to such a request.
pub(super) fn rewritable(path: &Path, parameters: &Parameters<'_>) -> bool {
    let allowed: &[Parameter] =
        if path.name.is_some() { &GET_PARAMETERS } else { &REWRITABLE_PARAMETERS };
    parameters.check().is_ok()
        && parameters.get(Parameter::ResourceVersion).is_none()
        && parameters.only(allowed)
}

fn get(path: &Path, parameters: &Parameters<'_>) -> Result<Read, NotModelled> {
    if !parameters.only(&GET_PARAMETERS) {
        return Err(NotModelled::UnknownParameter);
    }
    let version = match parameters.get_set(Parameter::ResourceVersion) {
        None => VersionMatch::MostRecent,
        Some("0") => VersionMatch::Any,
        Some(text) => VersionMatch::NotOlderThan(version(text)?),
    };
    let fields = FieldSelector::name(path.name.as_deref().unwrap_or_default());
    Ok(Read {
        query: query(path, LabelSelector::everything(), fields),
        name: path.name.clone(),
        version,
        limit: None,
        pretty: parameters.get(Parameter::Pretty).map(str::to_owned),
        include: include_object(parameters)?,
    })
}

fn list(path: &Path, parameters: &Parameters<'_>) -> Result<Read, NotModelled> {
    if parameters.get_set(Parameter::Continue).is_some() {
        return Err(NotModelled::Continue);
    }
    if parameters.get(Parameter::SendInitialEvents).is_some() {
        return Err(NotModelled::IllegalCombination);
    }
    integer(parameters, Parameter::TimeoutSeconds)?;
    let limit = limit(parameters)?;
    let version = list_version(parameters, limit)?;
    let (labels, fields) = selectors(path, parameters)?;
    Ok(Read {
        query: query(path, labels, fields),
        name: None,
        version,
        limit,
        pretty: parameters.get(Parameter::Pretty).map(str::to_owned),
        include: include_object(parameters)?,
    })
}

/// Returns the version by the table S-LIST-20..27, after the refusals S-LIST-01, S-LIST-03 and
/// S-LIST-04.
fn list_version(
    parameters: &Parameters<'_>,
    limit: Option<u64>,
) -> Result<VersionMatch, NotModelled> {
    let requested = parameters.get_set(Parameter::ResourceVersion);
    let matching = parameters.get_set(Parameter::ResourceVersionMatch);
    match (requested, matching) {
        (None, None) => Ok(VersionMatch::MostRecent),
        (Some("0"), None | Some("NotOlderThan")) => Ok(VersionMatch::Any),
        (Some("0"), Some("Exact")) => Err(NotModelled::IllegalCombination),
        (Some(text), Some("Exact")) => Ok(VersionMatch::Exact(version(text)?)),
        (Some(text), Some("NotOlderThan")) => Ok(VersionMatch::NotOlderThan(version(text)?)),
        // A version alone, together with a limit, has always meant exactly that version.
        (Some(text), None) if limit.is_some() => Ok(VersionMatch::Exact(version(text)?)),
        (Some(text), None) => Ok(VersionMatch::NotOlderThan(version(text)?)),
        (None, Some(_)) | (Some(_), Some(_)) => Err(NotModelled::IllegalCombination),
    }
}

/// Returns both selectors of a LIST or WATCH.
pub(super) fn selectors(
    path: &Path,
    parameters: &Parameters<'_>,
) -> Result<(LabelSelector, FieldSelector), NotModelled> {
    let labels = parameters.get(Parameter::LabelSelector).unwrap_or_default();
    let fields_text = parameters.get(Parameter::FieldSelector).unwrap_or_default();
    if [labels, fields_text].into_iter().any(is_oversized) {
        return Err(NotModelled::Oversized);
    }
    let labels = LabelSelector::parse(labels).map_err(|_| NotModelled::BadSelector)?;
    let fields = fields(path, fields_text)?;
    Ok((labels, fields))
}

/// Reports whether a selector is too large to be parsed. Commas separate requirements and values.
fn is_oversized(selector: &str) -> bool {
    let commas = || selector.bytes().filter(|byte| *byte == b',').count();
    selector.len() > SELECTOR_BYTES_MAX || commas() >= SELECTOR_VALUES_MAX
}

fn fields(path: &Path, text: &str) -> Result<FieldSelector, NotModelled> {
    if text.is_empty() {
        return Ok(FieldSelector::everything());
    }
    let fields = FieldSelector::parse(text).map_err(|_| NotModelled::BadSelector)?;
    let scope = storage_scope(&path.resource, &path.scope);
    let fields = selector::canonical_fields(&path.resource, &scope, &fields)
        .ok_or(NotModelled::UnmodelledField)?;
    // The name is a part of access reviews, which are remembered.
    if fields.pinned(NAME_PATH).is_some_and(|name| name.len() > NAME_BYTES_MAX) {
        return Err(NotModelled::Oversized);
    }
    // The apiserver uses the first of several names for authorization and for the read (S-URL-07,
    // S-SEL-22).
    if fields.pinned_pairs().filter(|(path, _)| *path == NAME_PATH).count() > 1 {
        return Err(NotModelled::IllegalCombination);
    }
    Ok(fields)
}

/// Returns the query of the path and the selectors.
pub(super) fn query(path: &Path, labels: LabelSelector, fields: FieldSelector) -> Query {
    let scope = storage_scope(&path.resource, &path.scope);
    Query { resource: path.resource.clone(), scope, labels, fields }
}

/// Parses a version other than 0. The apiserver refuses one that is no `uint64`.
pub(super) fn version(text: &str) -> Result<ResourceVersion, NotModelled> {
    text.parse::<u64>().map_err(|_| NotModelled::BadVersion)?;
    ResourceVersion::parse(text).map_err(|_| NotModelled::BadVersion)
}

/// Parses a numeric parameter.
pub(super) fn integer(
    parameters: &Parameters<'_>,
    parameter: Parameter,
) -> Result<Option<i64>, NotModelled> {
    let parse = |text: &str| text.parse().map_err(|_| NotModelled::BadValue);
    parameters.get(parameter).map(parse).transpose()
}

/// Parses `includeObject`, which concerns only Tables. The apiserver refuses a bad value of those.
pub(super) fn include_object(parameters: &Parameters<'_>) -> Result<Include, NotModelled> {
    match parameters.get(Parameter::IncludeObject) {
        None | Some("" | "Metadata") => Ok(Include::Metadata),
        Some("None") => Ok(Include::None),
        Some("Object") => Ok(Include::Object),
        Some(_) => Err(NotModelled::BadValue),
    }
}
