//! Who may do what: the user who asks, and the injector; pure.

use super::{Found, Missing, Row};

/// What may be read of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The resource, as `deployments.apps`.
    pub resource: String,
    /// How much of it.
    pub scope: ReadScope,
}

/// Where lists and watches are allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadScope {
    /// Everywhere.
    Cluster,
    /// In this namespace.
    Namespace(String),
    /// Neither there nor everywhere.
    Nowhere,
}

/// One thing the injector needs, and whether it may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// `patch mutatingwebhookconfigurations listless-injector`.
    pub what: String,
    /// Whether it is allowed.
    pub allowed: bool,
}

/// Groups without which something is missing, and what that is.
const GROUPS: &[(&str, &str)] = &[
    ("authorization.k8s.io/v1", "no read is answered from memory without access reviews"),
    ("admissionregistration.k8s.io/v1", "no sidecar is injected without webhooks"),
];

/// Whether the apiserver serves what Listless asks it.
pub fn features(found: &Found<Vec<String>>) -> Row {
    let name = "features";
    let groups = match found {
        Ok(groups) => groups,
        Err(missing) => return missing.skip(name, "discovery takes the role system:discovery"),
    };
    let lost: Vec<_> = GROUPS
        .iter()
        .filter(|(group, _)| !groups.iter().any(|served| served == group))
        .map(|(group, what)| format!("{group} is not served: {what}"))
        .collect();
    if lost.is_empty() {
        return Row::pass(name, "access reviews and webhooks are served");
    }
    Row::fail(name, lost.join("; "), "switch these APIs on (--runtime-config)")
}

/// Whether memory could answer this user.
pub fn own(user: &Found<String>, reads: &Found<Vec<Read>>) -> Row {
    let name = "rights";
    let who = user.as_deref().unwrap_or("this user");
    let reads = match reads {
        Ok(reads) => reads,
        Err(missing) => {
            return missing.skip(name, "access reviews take the role system:basic-user");
        }
    };
    if reads.is_empty() {
        let hint = "say with --resource what it is to read";
        return Row::skipped(name, format!("asked as {who}"), hint);
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
    let mut told = Vec::new();
    if !nowhere.is_empty() {
        told.push(format!("{who} may not list and watch {}", nowhere.join(", ")));
    }
    if !narrow.is_empty() {
        let place = reads.iter().find_map(|read| match &read.scope {
            ReadScope::Namespace(namespace) => Some(namespace.as_str()),
            _ => None,
        });
        let place = place.unwrap_or_default();
        let what = narrow.join(", ");
        told.push(format!("{who} may list and watch {what} only in the namespace {place}"));
    }
    let hint = "reads as this user are forwarded there; a sidecar reads as its pod's own account";
    Row::warn(name, told.join("; "), hint)
}

/// Whether the injector may do what it must.
pub fn of_injector(found: &Found<Vec<Right>>) -> Row {
    let name = "injector-rights";
    let rights = match found {
        Ok(rights) => rights,
        Err(Missing::Absent(why)) => return Row::skipped(name, why, ""),
        Err(missing) => {
            return missing.skip(name, "asking for others takes create of subjectaccessreviews");
        }
    };
    let denied: Vec<_> =
        rights.iter().filter(|right| !right.allowed).map(|right| right.what.as_str()).collect();
    if denied.is_empty() {
        return Row::pass(name, format!("it may do all {} things it needs", rights.len()));
    }
    let hint = "give its service account the rights that the chart does (injector.rbac)";
    Row::fail(name, format!("its service account may not {}", denied.join(", nor ")), hint)
}

#[cfg(test)]
mod tests {
    use super::{super::Outcome, *};

    #[test]
    fn every_group_that_is_missed_is_named_with_what_it_costs() {
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
    fn narrow_rights_are_a_warning_that_says_where_they_hold() {
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
    fn an_injector_without_a_right_fails_and_the_right_is_named() {
        let right = |what: &str, allowed| Right { what: what.to_owned(), allowed };
        let row = of_injector(&Ok(vec![right("get secrets a", true), right("patch b", false)]));
        assert_eq!(row.result, Outcome::Fail);
        assert_eq!(row.detail, "its service account may not patch b");
        let row = of_injector(&Ok(vec![right("get secrets a", true)]));
        assert_eq!(row.result, Outcome::Pass);
        let row = of_injector(&Err(Missing::Absent("no injector".to_owned())));
        assert_eq!((row.result, &*row.detail), (Outcome::Skipped, "no injector"));
    }
}
