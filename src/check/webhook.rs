//! The webhook configuration: the address that the apiserver calls, and its trusted certificates.
//! Pure.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;

use super::{Found, Missing, Row};

/// Listless's entries in a MutatingWebhookConfiguration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// The configuration's name.
    pub name: String,
    /// Its webhooks, at least one.
    pub hooks: Vec<Hook>,
    /// The address of the first webhook.
    pub place: WebhookAddress,
    /// Other configurations of Listless, such as those of other revisions.
    pub others: Vec<String>,
}

/// One webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// Its name.
    pub name: String,
    /// `true` if pods are rejected while no injector answers.
    pub fails_closed: bool,
    /// Its trusted certificates in PEM. May be empty.
    pub bundle: String,
}

/// The address that the apiserver calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookAddress {
    /// A Service.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its port.
        port: u16,
        /// Its path.
        path: String,
    },
    /// A URL.
    Url(String),
}

/// The suffix of the names of Listless's webhooks.
const SUFFIX: &str = "inject.listless.dev";

// === impl Webhook ===

impl Webhook {
    /// Returns the first configuration with webhooks of Listless.
    pub fn among(configurations: &Value) -> Option<Self> {
        let items = configurations["items"].as_array().into_iter().flatten();
        let mut found: Vec<Self> = items.filter_map(Self::read).collect();
        if found.is_empty() {
            return None;
        }
        let mut first = found.remove(0);
        first.others = found.into_iter().map(|other| other.name).collect();
        Some(first)
    }

    /// Parses a configuration that has webhooks of Listless.
    pub fn read(configuration: &Value) -> Option<Self> {
        let entries = configuration["webhooks"].as_array().into_iter().flatten();
        let ours: Vec<&Value> = entries
            .filter(|entry| entry["name"].as_str().is_some_and(|name| name.ends_with(SUFFIX)))
            .collect();
        let place = WebhookAddress::read(&ours.first()?["clientConfig"])?;
        let name = configuration["metadata"]["name"].as_str()?.to_owned();
        let hooks = ours.into_iter().map(Hook::read).collect();
        Some(Self { name, hooks, place, others: Vec::new() })
    }

    /// Returns the trusted certificates of the first webhook.
    pub fn bundle(&self) -> &str {
        self.hooks.first().map_or("", |hook| &hook.bundle)
    }
}

// === impl Hook ===

impl Hook {
    fn read(entry: &Value) -> Self {
        let bundle = entry["clientConfig"]["caBundle"].as_str().unwrap_or_default();
        let bundle = STANDARD.decode(bundle).unwrap_or_default();
        Self {
            name: entry["name"].as_str().unwrap_or_default().to_owned(),
            fails_closed: entry["failurePolicy"] == "Fail",
            bundle: String::from_utf8(bundle).unwrap_or_default(),
        }
    }
}

// === impl WebhookAddress ===

impl WebhookAddress {
    fn read(config: &Value) -> Option<Self> {
        if let Some(url) = config["url"].as_str() {
            return Some(Self::Url(url.to_owned()));
        }
        let service = &config["service"];
        let text = |name: &str| service[name].as_str().map(str::to_owned);
        let port = service["port"].as_u64().and_then(|port| u16::try_from(port).ok());
        Some(Self::Service {
            namespace: text("namespace")?,
            name: text("name")?,
            port: port.unwrap_or(443),
            path: text("path").unwrap_or_else(|| "/".to_owned()),
        })
    }
}

impl std::fmt::Display for WebhookAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Service { namespace, name, .. } => write!(f, "service {namespace}/{name}"),
            Self::Url(url) => f.write_str(url),
        }
    }
}

/// Checks that there is a webhook for the apiserver to call.
pub fn configured(found: &Found<Option<Webhook>>) -> Row {
    let name = "webhook";
    let webhook = match found {
        Ok(Some(webhook)) => webhook,
        Ok(None) => {
            let hint = "to inject sidecars, install the chart: docs/install.md";
            return Row::skipped(name, "this cluster has no webhook of Listless", hint);
        }
        Err(Missing::Absent(why)) => {
            return Row::fail(name, why, "install the chart, or omit --webhook-configuration");
        }
        Err(missing) => {
            let hint = "name it with --webhook-configuration, or allow list of \
                        mutatingwebhookconfigurations";
            return missing.skip(name, hint);
        }
    };
    let (own, place) = (&webhook.name, &webhook.place);
    let of = |wanted: fn(&Hook) -> bool| -> Vec<&str> {
        webhook.hooks.iter().filter(|hook| wanted(hook)).map(|hook| hook.name.as_str()).collect()
    };
    let bare = of(|hook| hook.bundle.is_empty());
    if !bare.is_empty() {
        let detail = format!("{own}: {} has no caBundle yet", bare.join(", "));
        let hint = "the injector writes it within ten seconds of its start; see its log";
        return Row::fail(name, detail, hint);
    }
    let closed = of(|hook| hook.fails_closed);
    if !closed.is_empty() {
        let detail = format!("{own}: {} fails closed", closed.join(", "));
        let hint = "pods that request a sidecar cannot be created while no injector answers; set \
                    injector.webhook.failurePolicy=Ignore to let them start without one";
        return Row::warn(name, detail, hint);
    }
    let others = match webhook.others.as_slice() {
        [] => String::new(),
        others => format!("; not checked: {}", others.join(", ")),
    };
    Row::pass(name, format!("{own} calls {place}{others}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::Outcome, *};

    fn configuration(name: &str, hook: &Value) -> Value {
        json!({"metadata": {"name": name}, "webhooks": [
            {"name": "sidecars.example.com", "clientConfig": {"url": "https://other"}}, hook,
        ]})
    }

    fn hook(policy: &str, bundle: &str) -> Value {
        json!({"name": "pod.inject.listless.dev", "failurePolicy": policy, "clientConfig": {
            "caBundle": bundle,
            "service": {"namespace": "listless", "name": "injector", "path": "/inject"},
        }})
    }

    #[test]
    fn configurations_of_listless_are_found_by_their_webhooks_names() {
        let list = json!({"items": [
            {"metadata": {"name": "a"}, "webhooks": [{"name": "x.example.com"}]},
            configuration("ours", &hook("Ignore", "YQ==")),
            configuration("canary", &hook("Ignore", "YQ==")),
        ]});
        let webhook = Webhook::among(&list).expect("a webhook");
        assert_eq!((webhook.name.as_str(), webhook.bundle()), ("ours", "a"));
        assert_eq!(webhook.hooks.len(), 1, "only our own");
        assert_eq!(webhook.place.to_string(), "service listless/injector");
        let row = configured(&Ok(Some(webhook)));
        assert_eq!(row.result, Outcome::Pass);
        assert!(row.detail.ends_with("; not checked: canary"), "{row:?}");
        assert_eq!(Webhook::among(&json!({"items": []})), None);
    }

    #[test]
    fn a_webhook_without_a_bundle_or_that_fails_closed_is_reported() {
        let judge = |policy, bundle| {
            configured(&Ok(Webhook::read(&configuration("ours", &hook(policy, bundle)))))
        };
        assert_eq!(judge("Ignore", "").result, Outcome::Fail);
        assert_eq!(judge("Ignore", "not base64").result, Outcome::Fail);
        assert_eq!(judge("Fail", "YQ==").result, Outcome::Warn);
        assert_eq!(configured(&Ok(None)).result, Outcome::Skipped);
        let gone = configured(&Err(Missing::Absent("x is not there".to_owned())));
        assert_eq!((gone.result, &*gone.detail), (Outcome::Fail, "x is not there"));
        let denied = configured(&Err(Missing::Forbidden("no".to_owned())));
        assert_eq!(denied.result, Outcome::Skipped);
    }
}
