//! The check of the injector's Deployment and its options. Pure.

use serde_json::Value;

use super::{
    Found, Row,
    webhook::{Webhook, WebhookAddress},
};

/// The Deployment behind the webhook's Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injector {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The version that it reports.
    pub version: String,
    /// The image of injected sidecars.
    pub sidecar_image: String,
    /// The number of desired replicas.
    pub wanted: u64,
    /// The number of ready replicas.
    pub ready: u64,
    /// Its service account.
    pub service_account: String,
    /// The Secret with its certificates.
    pub secret: String,
    /// The webhook configuration that calls it.
    pub webhook_configuration: String,
    /// `true` if it reports to owners of pods by events.
    pub tells: bool,
}

/// The default values of the options.
const SECRET: &str = "listless-injector-certificates";
const WEBHOOK_CONFIGURATION: &str = "listless-injector";

// === impl Injector ===

impl Injector {
    /// Reads a Deployment that runs an injector.
    pub fn read(deployment: &Value) -> Option<Self> {
        let template = &deployment["spec"]["template"];
        let containers = template["spec"]["containers"].as_array()?;
        let injects = |container: &&Value| arguments(container).next() == Some("injector");
        let container = containers.iter().find(injects)?;
        let image = container["image"].as_str()?.to_owned();
        let option = |flag: &str| value(container, flag).map(str::to_owned);
        let metadata = &deployment["metadata"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let version = text(&metadata["labels"]["app.kubernetes.io/version"]);
        let account = text(&template["spec"]["serviceAccountName"]);
        Some(Self {
            namespace: text(&metadata["namespace"])?,
            name: text(&metadata["name"])?,
            version: version.or_else(|| tag(&image).map(str::to_owned)).unwrap_or_default(),
            sidecar_image: option("--image").unwrap_or(image),
            wanted: deployment["spec"]["replicas"].as_u64().unwrap_or(1),
            ready: deployment["status"]["readyReplicas"].as_u64().unwrap_or_default(),
            service_account: account.unwrap_or_else(|| "default".to_owned()),
            secret: option("--secret").unwrap_or_else(|| SECRET.to_owned()),
            webhook_configuration: option("--webhook-configuration")
                .unwrap_or_else(|| WEBHOOK_CONFIGURATION.to_owned()),
            tells: !arguments(container).any(|argument| argument == "--no-events"),
        })
    }

    /// Returns the needed permissions: verb, group, resource, namespace, name.
    pub fn needs(&self) -> Vec<[&str; 5]> {
        let webhooks = ("admissionregistration.k8s.io", "mutatingwebhookconfigurations");
        let mut needs = vec![
            ["get", "", "secrets", &self.namespace, &self.secret],
            ["update", "", "secrets", &self.namespace, &self.secret],
            ["get", webhooks.0, webhooks.1, "", &self.webhook_configuration],
            ["patch", webhooks.0, webhooks.1, "", &self.webhook_configuration],
        ];
        if self.tells {
            needs.push(["create", "", "events", "", ""]);
        }
        needs
    }
}

fn arguments(container: &Value) -> impl Iterator<Item = &str> {
    container["args"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Returns the value of a flag, from `--flag=value` or from two arguments.
fn value<'a>(container: &'a Value, flag: &str) -> Option<&'a str> {
    let mut all = arguments(container);
    while let Some(argument) = all.next() {
        match argument.strip_prefix(flag) {
            Some("") => return all.next(),
            Some(rest) if rest.starts_with('=') => return Some(&rest[1..]),
            _ => {}
        }
    }
    None
}

/// Returns the tag of an image reference.
pub(super) fn tag(image: &str) -> Option<&str> {
    let name = image.split('@').next().unwrap_or(image);
    let last = name.rsplit('/').next().unwrap_or(name);
    last.split_once(':').map(|(_, tag)| tag)
}

/// Checks that the webhook has ready replicas.
pub fn runs(found: &Found<Option<Injector>>, webhook: Option<&Webhook>) -> Row {
    let name = "injector";
    let injector = match (found, webhook.map(|webhook| &webhook.place)) {
        (_, None) => return Row::skipped(name, "there is no known webhook", ""),
        (_, Some(WebhookAddress::Url(url))) => {
            return Row::skipped(name, format!("the webhook uses {url}, not a Service"), "");
        }
        (Err(missing), _) => {
            return missing
                .skip(name, "allow get of the webhook's Service and list of deployments");
        }
        (Ok(None), Some(place)) => {
            let detail = format!("no Deployment has the pods of {place}");
            return Row::fail(name, detail, "reinstall the chart, or remove the webhook");
        }
        (Ok(Some(injector)), _) => injector,
    };
    let Injector { namespace, name: own, version, wanted, ready, .. } = injector;
    let detail = format!("{namespace}/{own} {version}: {ready} of {wanted} ready");
    if *ready == 0 {
        let hint = "pods start without a sidecar; see the injector's pods and their events";
        return Row::fail(name, detail, hint);
    }
    if ready < wanted {
        return Row::warn(name, detail, "see its pods and their events");
    }
    Row::pass(name, detail)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::Outcome, *};

    fn deployment(ready: u64, arguments: &[&str]) -> Value {
        json!({
            "metadata": {"namespace": "system", "name": "injector",
                "labels": {"app.kubernetes.io/version": "1.2.3"}},
            "spec": {"replicas": 2, "template": {"spec": {
                "serviceAccountName": "injector",
                "containers": [{"name": "injector", "image": "r:5000/listless:1", "args": arguments}],
            }}},
            "status": {"readyReplicas": ready},
        })
    }

    fn webhook(place: WebhookAddress) -> Webhook {
        Webhook { name: String::new(), hooks: Vec::new(), place, others: Vec::new() }
    }

    #[test]
    fn options_are_read_from_the_arguments() {
        let told = ["injector", "--secret=kept", "--image", "r/side@sha256:1", "--no-events"];
        let injector = Injector::read(&deployment(2, &told)).expect("an injector");
        assert_eq!(injector.secret, "kept");
        assert_eq!(injector.sidecar_image, "r/side@sha256:1");
        assert_eq!(injector.webhook_configuration, "listless-injector");
        assert_eq!(injector.needs().len(), 4);
        let plain = Injector::read(&deployment(2, &["injector"])).expect("an injector");
        assert_eq!(plain.sidecar_image, "r:5000/listless:1");
        assert_eq!(plain.needs().len(), 5);
        assert_eq!(Injector::read(&deployment(2, &["gateway"])), None);
    }

    #[test]
    fn tags_are_distinguished_from_ports_and_digests() {
        for (image, expected) in [
            ("r:5000/listless:1", Some("1")),
            ("r:5000/listless", None),
            ("listless:latest@sha256:00", Some("latest")),
            ("r/listless@sha256:00", None),
        ] {
            assert_eq!(tag(image), expected, "{image}");
        }
    }

    #[test]
    fn no_ready_replica_fails_and_a_missing_one_warns() {
        let service = WebhookAddress::Service {
            namespace: "system".to_owned(),
            name: "injector".to_owned(),
            port: 443,
            path: "/inject".to_owned(),
        };
        let service = webhook(service);
        let judge = |ready| {
            runs(&Ok(Injector::read(&deployment(ready, &["injector"]))), Some(&service)).result
        };
        assert_eq!([judge(0), judge(1), judge(2)], [Outcome::Fail, Outcome::Warn, Outcome::Pass]);
        assert_eq!(runs(&Ok(None), Some(&service)).result, Outcome::Fail);
        assert_eq!(runs(&Ok(None), None).result, Outcome::Skipped);
        let elsewhere = webhook(WebhookAddress::Url("https://x".to_owned()));
        assert_eq!(runs(&Ok(None), Some(&elsewhere)).result, Outcome::Skipped);
    }
}
