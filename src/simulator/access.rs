//! Authorization: a table of tokens and their rules, as RBAC decides (S-AUTHZ-02).

use std::{
    collections::HashMap,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use http::{HeaderMap, header};

use super::{route::Target, status::StatusFailure};
use crate::api::{GroupResource, Verb};

/// A caller and its permissions.
#[derive(Clone, Debug, Default)]
pub struct User {
    /// The user name.
    pub name: String,
    /// The allowed actions. All others are refused.
    pub rules: Vec<Rule>,
}

/// Verbs allowed on resources. An empty list allows any.
#[derive(Clone, Debug, Default)]
pub struct Rule {
    /// Verbs, such as `list`.
    pub verbs: Vec<String>,
    /// API groups.
    pub groups: Vec<String>,
    /// Plural names, or `plural/subresource`.
    pub resources: Vec<String>,
    /// Namespaces. An empty list also allows requests for all namespaces.
    pub namespaces: Vec<String>,
    /// Object names.
    pub names: Vec<String>,
}

/// The attributes of a request for authorization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attributes<'a> {
    /// The verb.
    pub verb: &'a str,
    /// The API group.
    pub group: &'a str,
    /// The plural name.
    pub resource: &'a str,
    /// The subresource, or empty.
    pub subresource: &'a str,
    /// The namespace. Empty for all of them.
    pub namespace: &'a str,
    /// The object's name, or empty.
    pub name: &'a str,
}

/// The table of tokens.
#[derive(Default)]
pub(super) struct Access {
    users: RwLock<HashMap<String, Arc<User>>>,
    /// `true` if an authorizer cannot list its rules, such as a webhook.
    incomplete: AtomicBool,
}

/// The sender of a request.
#[derive(Clone, Debug)]
pub(super) enum Caller {
    /// There is no table of tokens: everybody may do everything.
    Anyone,
    /// A known token.
    Known(Arc<User>),
    /// No token.
    Anonymous,
}

// === impl User ===

impl User {
    /// Returns a user who may do everything.
    pub fn admin(name: &str) -> Self {
        Self { name: name.to_owned(), rules: vec![Rule::default()] }
    }

    /// Returns a user with these rules.
    pub fn with_rules(name: &str, rules: Vec<Rule>) -> Self {
        Self { name: name.to_owned(), rules }
    }
}

// === impl Rule ===

impl Rule {
    /// Allows these verbs on these resources, in any group and namespace.
    pub fn new(verbs: &[&str], resources: &[&str]) -> Self {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        Self { verbs: owned(verbs), resources: owned(resources), ..Self::default() }
    }

    /// Restricts the rule to one namespace.
    pub fn within(mut self, namespace: &str) -> Self {
        self.namespaces.push(namespace.to_owned());
        self
    }

    fn allows_everything(&self) -> bool {
        let Self { verbs, groups, resources, namespaces, names } = self;
        [verbs, groups, resources, namespaces, names].iter().all(|list| list.is_empty())
    }

    fn allows(&self, asked: &Attributes<'_>) -> bool {
        let allows = |allowed: &[String], value: &str| {
            allowed.is_empty() || allowed.iter().any(|entry| entry == "*" || entry == value)
        };
        let resource = match asked.subresource {
            "" => asked.resource.to_owned(),
            subresource => format!("{}/{subresource}", asked.resource),
        };
        allows(&self.verbs, asked.verb)
            && allows(&self.groups, asked.group)
            && allows(&self.resources, &resource)
            && allows(&self.namespaces, asked.namespace)
            && allows(&self.names, asked.name)
    }
}

// === impl Access ===

impl Access {
    /// Accepts a token.
    pub(super) fn admit(&self, token: &str, user: User) {
        let mut table = self.users.write().unwrap_or_else(PoisonError::into_inner);
        table.insert(token.to_owned(), Arc::new(user));
    }

    /// Refuses a token. The table stays in force even if it is empty now.
    pub(super) fn expel(&self, token: &str) {
        let mut table = self.users.write().unwrap_or_else(PoisonError::into_inner);
        table.remove(token);
        table.entry(String::new()).or_default();
    }

    /// Answers rules reviews like an apiserver with a webhook authorizer.
    pub(super) fn hide_rules(&self) {
        self.incomplete.store(true, Ordering::Relaxed);
    }

    /// Reports whether a rules review lists all of them.
    pub(super) fn knows_all_rules(&self) -> bool {
        !self.incomplete.load(Ordering::Relaxed)
    }

    /// Returns the sender of these headers, or 401.
    pub(super) fn caller(&self, headers: &HeaderMap) -> Result<Caller, StatusFailure> {
        let table = self.users.read().unwrap_or_else(PoisonError::into_inner);
        if table.is_empty() {
            return Ok(Caller::Anyone);
        }
        let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(Caller::Anonymous) };
        // Anything but a bearer token counts as no credential.
        let mut words = value.to_str().unwrap_or_default().split(' ');
        let bearer = words.next().is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer"));
        match words.next().filter(|token| bearer && !token.is_empty()) {
            None => Ok(Caller::Anonymous),
            Some(token) => table
                .get(token)
                .map(|user| Caller::Known(user.clone()))
                .ok_or_else(StatusFailure::unauthorized),
        }
    }

    /// Returns the caller of a token.
    pub(super) fn owner(&self, token: &str) -> Option<Caller> {
        let table = self.users.read().unwrap_or_else(PoisonError::into_inner);
        table.get(token).map(|user| Caller::Known(user.clone()))
    }
}

// === impl Caller ===

impl Caller {
    /// Returns the user name, as in messages.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Anyone => "system:admin",
            Self::Known(user) => &user.name,
            Self::Anonymous => "system:anonymous",
        }
    }

    /// Reports whether a request is allowed.
    pub(super) fn may(&self, asked: &Attributes<'_>) -> bool {
        match self {
            Self::Anyone => true,
            Self::Known(user) => user.rules.iter().any(|rule| rule.allows(asked)),
            Self::Anonymous => false,
        }
    }

    /// Returns 403 unless the request is allowed (S-AUTHZ-09).
    pub(super) fn check(
        &self,
        target: &Target,
        verb: Verb,
        pinned_name: Option<&str>,
    ) -> Result<(), StatusFailure> {
        let asked = Attributes {
            verb: verb.as_str(),
            group: &target.group,
            resource: &target.resource,
            subresource: target.subresource.as_deref().unwrap_or_default(),
            namespace: target.namespace.as_deref().unwrap_or_default(),
            name: target.name.as_deref().or(pinned_name).unwrap_or_default(),
        };
        if self.may(&asked) { Ok(()) } else { Err(self.forbidden(&asked)) }
    }

    /// Returns 403 unless a non-resource path is allowed: discovery and health, which every cluster
    /// grants, or any path for a full administrator.
    pub(super) fn check_path(&self, path: &str) -> Result<(), StatusFailure> {
        let is_one_of = |paths: &[&str]| {
            paths.iter().any(|public| {
                path.strip_prefix(public).is_some_and(|rest| rest.is_empty() || rest == "/")
            })
        };
        let within = |trees: &[&str]| {
            trees.iter().any(|tree| path == *tree || path.starts_with(&format!("{tree}/")))
        };
        let allowed = is_one_of(&["/healthz", "/livez", "/readyz", "/version"])
            || match self {
                Self::Anyone => true,
                Self::Known(user) => {
                    user.rules.iter().any(Rule::allows_everything)
                        || within(&["/api", "/apis", "/openapi"])
                }
                Self::Anonymous => false,
            };
        if allowed {
            return Ok(());
        }
        let message = format!("forbidden: User {:?} cannot get path {path:?}", self.name());
        Err(StatusFailure::new(403, "Forbidden", message).with_empty_details())
    }

    fn forbidden(&self, asked: &Attributes<'_>) -> StatusFailure {
        let group_resource = GroupResource::new(asked.group, asked.resource);
        let subject = match asked.name {
            "" => format!("{group_resource} is forbidden"),
            name => format!("{group_resource} \"{name}\" is forbidden"),
        };
        let resource = match asked.subresource {
            "" => asked.resource.to_owned(),
            subresource => format!("{}/{subresource}", asked.resource),
        };
        let place = match asked.namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace \"{namespace}\""),
        };
        let message = format!(
            "{subject}: User \"{}\" cannot {} resource \"{resource}\" in API group \"{}\" {place}",
            self.name(),
            asked.verb,
            asked.group
        );
        StatusFailure::new(403, "Forbidden", message).about(&group_resource, asked.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_allow_only_what_they_name() {
        let rule = Rule::new(&["list", "watch"], &["pods"]).within("shop");
        let caller = Caller::Known(Arc::new(User::with_rules("ann", vec![rule])));
        let asked = Attributes {
            verb: "list",
            group: "",
            resource: "pods",
            subresource: "",
            namespace: "shop",
            name: "",
        };
        for (attributes, allowed) in [
            (asked, true),
            (Attributes { verb: "get", ..asked }, false),
            (Attributes { namespace: "", ..asked }, false),
            (Attributes { subresource: "log", ..asked }, false),
            (Attributes { resource: "secrets", ..asked }, false),
        ] {
            assert_eq!(caller.may(&attributes), allowed, "{attributes:?}");
        }
    }

    #[test]
    fn refusals_have_the_words_of_rbac() {
        let target = Target {
            group: "apps".to_owned(),
            resource: "deployments".to_owned(),
            namespace: Some("a".to_owned()),
            ..Target::default()
        };
        let failure =
            Caller::Anonymous.check(&target, Verb::List, None).expect_err("anonymous may nothing");
        let text = String::from_utf8(failure.to_json().to_bytes()).expect("UTF-8");
        assert_eq!(
            text,
            concat!(
                r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#,
                r#""message":"deployments.apps is forbidden: User \"system:anonymous\" cannot "#,
                r#"list resource \"deployments\" in API group \"apps\" in the namespace \"a\"","#,
                r#""reason":"Forbidden","details":{"group":"apps","kind":"deployments"},"code":403}"#
            )
        );
    }
}
