//! The rules that apply to a request, and whether they let the cache answer it. Pure.

use super::ForwardReason;
use crate::{
    api::{
        query::Query,
        request::{RequestInfo, ResourceRequest},
        version::VersionMatch,
    },
    policy::{Policy, ResourcePolicy, Start, Subject},
    proxy::session::Session,
};

/// Returns the rules for a request of a client with this user agent.
pub fn rules(info: &RequestInfo, policy: &Policy, user_agent: &[u8]) -> ResourcePolicy {
    let Some(request) = info.resource_request() else { return ResourcePolicy::LEFT_ALONE };
    let selects = match (&request.read, &request.watch) {
        (Ok(read), _) => read.name.is_none() && !read.query.selects_all(),
        (Err(_), Some(watch)) => !watch.query.selects_all(),
        (Err(_), None) => false,
    };
    let resource = request.resource.group_resource();
    let (namespace, verb) = (request.scope.namespace(), request.verb);
    *policy.rules(&Subject { resource: &resource, namespace, verb, user_agent, selects })
}

/// Checks whether these rules let the cache answer now.
pub(super) fn permit(
    rules: &ResourcePolicy,
    request: &ResourceRequest,
    session: &Session,
) -> Result<(), ForwardReason> {
    if rules.start == Start::Never {
        return Err(ForwardReason::NeverCached);
    }
    if let Some(query) = without_version(request)
        && session.must_go_upstream(query, request.name.as_deref())
    {
        return Err(ForwardReason::AfterExpiry);
    }
    Ok(())
}

/// Returns the query of a read of the newest state, or of a watch that begins with it.
fn without_version(request: &ResourceRequest) -> Option<&Query> {
    match (&request.read, &request.watch) {
        (Ok(read), _) => (read.version == VersionMatch::MostRecent).then_some(&read.query),
        (Err(_), watch) => {
            watch.as_ref().filter(|watch| watch.begins_with_newest()).map(|watch| &watch.query)
        }
    }
}
