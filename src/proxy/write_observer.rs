//! The observer of a write, which detects whether it changes anything. The version before is the
//! replica's, or the last shown one.

use crate::{
    api::{Verb, form::Form, query::Query, request::RequestInfo, selector::FieldSelector},
    cache::{Cache, View},
    insight::{Asker, Insight, WriteObserver},
};

/// Returns the observer of a GET, an update or a patch of one object.
pub(super) fn of(
    info: &RequestInfo,
    asker: Option<&Asker>,
    insight: &Insight,
    cache: &Cache,
) -> Option<WriteObserver> {
    let request = info.resource_request()?;
    if !matches!(request.verb, Verb::Get | Verb::Update | Verb::Patch) {
        return None;
    }
    if request.verb == Verb::Get {
        return Some(insight.write_observer(asker?, None));
    }
    let (key, name) = (request.object_key()?, request.name.as_deref()?);
    let all = Query::all(request.resource.clone(), request.scope.clone());
    let query = Query { fields: FieldSelector::name(name), ..all };
    let views = Form::ALL.iter().filter_map(|form| cache.peek(&query, *form));
    let version = |view: View| Some(view.snapshot.as_ref()?.object(&key)?.version().clone());
    let held = views.filter_map(version).max();
    Some(insight.write_observer(asker?, held.as_ref()))
}
