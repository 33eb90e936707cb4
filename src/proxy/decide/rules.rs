//! The rules that apply to a request, and whether they let the cache answer it. Pure.

use super::{ForwardReason, Plan};
use crate::{
    api::request::{RequestInfo, ResourceRequest},
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
) -> Result<(), Plan> {
    if rules.start == Start::Never {
        return Err(Plan::keep(ForwardReason::NeverCached));
    }
    if session.must_go_upstream(&request.resource.group_resource()) {
        return Err(Plan::keep(ForwardReason::AfterExpiry));
    }
    Ok(())
}
