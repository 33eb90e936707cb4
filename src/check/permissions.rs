//! The permissions of the user and of the injector. Pure.

use super::{Found, Missing, Row};

/// The read permission for one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The resource, such as `deployments.apps`.
    pub resource: String,
    /// The scope of the permission.
    pub scope: ReadScope,
}

/// The scope in which list and watch are allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadScope {
    /// All namespaces.
    Cluster,
    /// Only this namespace.
    Namespace(String),
    /// No scope.
    Nowhere,
}

/// One permission of the injector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permission {
    /// The action, such as `patch mutatingwebhookconfigurations listless-injector`.
    pub what: String,
    /// `true` if it is allowed.
    pub allowed: bool,
}

/// The needed API groups, with the effect of their absence.
const GROUPS: &[(&str, &str)] = &[
    ("authorization.k8s.io/v1", "no read is answered from memory without access reviews"),
    ("admissionregistration.k8s.io/v1", "no sidecar is injected without webhooks"),
];

/// Checks that the apiserver serves the needed API groups.
pub fn features(found: &Found<Vec<String>>) -> Row {
    let name = "features";
    let groups = match found {
        Ok(groups) => groups,
        Err(missing) => return missing.skip(name, "discovery needs the role system:discovery"),
    };
    let lost: Vec<_> = GROUPS
        .iter()
        .filter(|(group, _)| !groups.iter().any(|served| served == group))
        .map(|(group, what)| format!("{group} is not served: {what}"))
        .collect();
    if lost.is_empty() {
        return Row::pass(name, "access reviews and webhooks are served");
    }
    Row::fail(name, lost.join("; "), "enable these APIs (--runtime-config)")
}

/// Checks that the user's reads can be answered from memory.
pub fn own(user: &Found<String>, reads: &Found<Vec<Read>>) -> Row {
    let name = "permissions";
    let who = user.as_deref().unwrap_or("this user");
    let reads = match reads {
        Ok(reads) => reads,
        Err(missing) => {
            return missing.skip(name, "access reviews need the role system:basic-user");
        }
    };
    if reads.is_empty() {
        let hint = "name the resources to read with --resource";
        return Row::skipped(name, format!("connected as {who}"), hint);
    }
    let of = |wanted: fn(&ReadScope) -> bool| -> Vec<&str> {
        let found = reads.iter().filter(|read| wanted(&read.scope));
        found.map(|read| read.resource.as_str()).collect()
    };
    let nowhere = of(|scope| *scope == ReadScope::Nowhere);
    let narrow = of(|scope| matches!(scope, ReadScope::Namespace(_)));
    if nowhere.is_empty() && narrow.is_empty() {
        let all: Vec<_> = reads.iter().map(|read| read.resource.as_str()).collect();
        return Row::pass(name, format!("{who} may list and watch {}", all.join(", ")));
    }
    let mut problems = Vec::new();
    if !nowhere.is_empty() {
        problems.push(format!("{who} may not list and watch {}", nowhere.join(", ")));
    }
    if !narrow.is_empty() {
        let place = reads.iter().find_map(|read| match &read.scope {
            ReadScope::Namespace(namespace) => Some(namespace.as_str()),
            _ => None,
        });
        let place = place.unwrap_or_default();
        let what = narrow.join(", ");
        problems.push(format!("{who} may list and watch {what} only in the namespace {place}"));
    }
    let hint = "reads by this user are forwarded there; a sidecar reads with its pod's own service \
                account";
    Row::warn(name, problems.join("; "), hint)
}

/// Checks the injector's permissions.
pub fn of_injector(found: &Found<Vec<Permission>>) -> Row {
    let name = "injector-permissions";
    let permissions = match found {
        Ok(permissions) => permissions,
        Err(Missing::Absent(why)) => return Row::skipped(name, why, ""),
        Err(missing) => {
            return missing.skip(
                name,
                "checking the injector needs permission to create \
                                       subjectaccessreviews",
            );
        }
    };
    let denied: Vec<_> = permissions
        .iter()
        .filter(|permission| !permission.allowed)
        .map(|permission| permission.what.as_str())
        .collect();
    if denied.is_empty() {
        return Row::pass(
            name,
            format!("the injector has all {} permissions it needs", permissions.len()),
        );
    }
    let hint = "grant its service account the permissions of the chart (injector.rbac)";
    Row::fail(name, format!("its service account may not {}", denied.join(", nor ")), hint)
}

#[cfg(test)]
mod tests {
    use super::{super::Outcome, *};

    #[test]
    fn every_missing_group_is_named_with_its_effect() {
        let served = |groups: &[&str]| {
            features(&Ok(groups.iter().map(|group| (*group).to_owned()).collect()))
        };
        let all = ["apps/v1", "authorization.k8s.io/v1", "admissionregistration.k8s.io/v1"];
        assert_eq!(served(&all).result, Outcome::Pass);
        let row = served(&all[..2]);
        assert_eq!(row.result, Outcome::Fail);
        assert!(row.detail.contains("no sidecar is injected"), "{row:?}");
        let unknown = Err(Missing::Forbidden("no".to_owned()));
        assert_eq!(features(&unknown).result, Outcome::Skipped);
    }

    #[test]
    fn a_limited_permission_is_a_warning_with_its_scope() {
        let read = |resource: &str, scope| Read { resource: resource.to_owned(), scope };
        let everywhere = vec![read("pods", ReadScope::Cluster)];
        let user = Ok("jane".to_owned());
        let row = own(&user, &Ok(everywhere));
        assert_eq!((row.result, &*row.detail), (Outcome::Pass, "jane may list and watch pods"));
        let mixed = vec![
            read("pods", ReadScope::Namespace("shop".to_owned())),
            read("nodes", ReadScope::Nowhere),
        ];
        let row = own(&user, &Ok(mixed));
        assert_eq!(row.result, Outcome::Warn);
        let expected = "jane may not list and watch nodes; jane may list and watch pods only in the \
                        namespace shop";
        assert_eq!(row.detail, expected);
    }

    #[test]
    fn an_injector_without_a_permission_fails_and_the_permission_is_named() {
        let right = |what: &str, allowed| Permission { what: what.to_owned(), allowed };
        let row = of_injector(&Ok(vec![right("get secrets a", true), right("patch b", false)]));
        assert_eq!(row.result, Outcome::Fail);
        assert_eq!(row.detail, "its service account may not patch b");
        let row = of_injector(&Ok(vec![right("get secrets a", true)]));
        assert_eq!(row.result, Outcome::Pass);
        let row = of_injector(&Err(Missing::Absent("no injector".to_owned())));
        assert_eq!((row.result, &*row.detail), (Outcome::Skipped, "no injector"));
    }
}
