//! Reads all facts for the checks from the apiserver and the webhook's server.
//!
//! Every request has a limit in time and size. A refusal is recorded with the apiserver's words.
//! Only an unreachable apiserver ends the check.

mod server;

use std::sync::Arc;

use http::{HeaderMap, StatusCode, header};
use serde_json::{Value, json};

use self::server::Server;
use super::{
    Facts, Found, Missing,
    contact::Contact,
    injector::Injector,
    permissions::{Permission, Read, ReadScope},
    pods::Pods,
    release::Kubelets,
    trial::{self, Came, Trial},
    webhook::{Webhook, WebhookAddress},
};
use crate::{
    api::GroupResource,
    error::Chain,
    injector::api::{self, Error},
    tls,
    upstream::Client,
};

/// The client and the apiserver of a check.
pub struct Asker {
    /// The client to the apiserver, as the user.
    pub client: Arc<dyn Client>,
    /// The apiserver: host and port.
    pub apiserver: String,
    /// The network position of this process.
    pub vantage: Vantage,
}

/// The network position of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vantage {
    /// In a pod, which reaches the addresses of Services.
    Pod,
    /// Outside, where a Service's address may belong to another host.
    Outside,
}

/// The subject of a check.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The MutatingWebhookConfiguration, if one was named.
    pub webhook_configuration: Option<String>,
    /// The namespace of the test pod, if one was named.
    pub namespace: Option<String>,
    /// The user's own namespace.
    pub own_namespace: String,
    /// The resources that the user wants to read.
    pub resources: Vec<GroupResource>,
}

/// The page size of a list. Larger pages of pods would exceed the body limit.
const PAGE_OBJECTS: usize = 100;
/// The maximum number of pages of one list.
const PAGES_MAX: usize = 1000;
/// The label selector of namespaces with injection, as a query parameter.
const INJECTION: &str = "listless.dev%2Finjection%3Denabled";

const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1";

// === impl Asker ===

impl Asker {
    /// Collects all facts.
    pub async fn facts(&self, subject: &Subject) -> Facts {
        let version = self.get("/version").await;
        let version = version.and_then(|version| match version["gitVersion"].as_str() {
            Some(text) => Ok(text.to_owned()),
            None => Err(Missing::Failed("/version has no version".to_owned())),
        });
        let mut facts = Facts::unknown(self.apiserver.clone(), version);
        if facts.version.is_err() {
            return facts;
        }
        facts.groups = self.get("/apis").await.map(|groups| served(&groups));
        facts.user = self.user().await;
        facts.reads = self.reads(subject).await;
        facts.webhook = self.webhook(subject.webhook_configuration.as_deref()).await;
        let asking = self.namespaces().await;
        if let Ok(Some(webhook)) = &facts.webhook {
            let service = self.service(webhook).await;
            facts.injector = self.injector(&service).await;
            facts.injector_permissions = self.injector_permissions(&facts.injector).await;
            let server = self.server(webhook, &service);
            facts.contact = self.contact(webhook, &server, &facts.injector).await;
            facts.trial = self.trial(webhook, subject, &asking, server.ok()).await;
        }
        facts.pods = self.pods(asking).await;
        facts.kubelets = self.kubelets().await;
        facts
    }

    async fn get(&self, path: &str) -> Found<Value> {
        api::get(self.client.as_ref(), path).await.map_err(Missing::from)
    }

    async fn review(&self, path: &str, review: &Value) -> Found<Value> {
        api::post(self.client.as_ref(), path, review).await.map_err(Missing::from)
    }

    async fn user(&self) -> Found<String> {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let review = self.review(path, &review).await?;
        let name = review["status"]["userInfo"]["username"].as_str();
        name.map(str::to_owned).ok_or_else(|| Missing::Failed("the object has no name".to_owned()))
    }

    async fn reads(&self, subject: &Subject) -> Found<Vec<Read>> {
        let mut reads = Vec::new();
        for resource in &subject.resources {
            let own = subject.own_namespace.as_str();
            let scope = if self.may_read(resource, "").await? {
                ReadScope::Cluster
            } else if !own.is_empty() && self.may_read(resource, own).await? {
                ReadScope::Namespace(own.to_owned())
            } else {
                ReadScope::Nowhere
            };
            reads.push(Read { resource: resource.to_string(), scope });
        }
        Ok(reads)
    }

    async fn may_read(&self, resource: &GroupResource, namespace: &str) -> Found<bool> {
        for verb in ["list", "watch"] {
            let asked = [verb, &resource.group, &resource.resource, namespace, ""];
            if !self.may(None, asked).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reports whether a user has a permission. `None` stands for the user of the check.
    async fn may(&self, who: Option<&str>, asked: [&str; 5]) -> Found<bool> {
        let [verb, group, resource, namespace, name] = asked;
        let attributes = json!({"verb": verb, "group": group, "resource": resource,
            "namespace": namespace, "name": name});
        let (kind, plural) = match who {
            None => ("SelfSubjectAccessReview", "selfsubjectaccessreviews"),
            Some(_) => ("SubjectAccessReview", "subjectaccessreviews"),
        };
        let mut review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind,
            "spec": {"resourceAttributes": attributes}});
        if let Some(who) = who {
            review["spec"]["user"] = json!(who);
        }
        let review = self.review(&format!("{REVIEWS}/{plural}"), &review).await?;
        Ok(review["status"]["allowed"] == true)
    }

    async fn webhook(&self, name: Option<&str>) -> Found<Option<Webhook>> {
        let Some(name) = name else {
            return Ok(Webhook::among(&self.get(WEBHOOKS).await?));
        };
        let configuration = self.get(&format!("{WEBHOOKS}/{name}")).await?;
        match Webhook::read(&configuration) {
            Some(webhook) => Ok(Some(webhook)),
            None => Err(Missing::Absent(format!("{name} has no webhook of Listless"))),
        }
    }

    /// Reads the Service of the webhook.
    async fn service(&self, webhook: &Webhook) -> Found<Value> {
        match &webhook.place {
            WebhookAddress::Url(url) => {
                Err(Missing::Absent(format!("the webhook uses the URL {url}")))
            }
            WebhookAddress::Service { namespace, name, .. } => {
                self.get(&format!("/api/v1/namespaces/{namespace}/services/{name}")).await
            }
        }
    }

    async fn injector(&self, service: &Found<Value>) -> Found<Option<Injector>> {
        let service = service.as_ref().map_err(Missing::clone)?;
        let namespace = service["metadata"]["namespace"].as_str().unwrap_or_default();
        let labels = service["spec"]["selector"].as_object().into_iter().flatten();
        let labels = labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or("")));
        let selector = labels.collect::<Vec<_>>().join(",");
        let selector = selector.replace('/', "%2F").replace('=', "%3D").replace(',', "%2C");
        let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
        let list = self.get(&format!("{path}?labelSelector={selector}")).await?;
        let items = list["items"].as_array().into_iter().flatten();
        Ok(items.filter_map(Injector::read).next())
    }

    async fn injector_permissions(
        &self,
        injector: &Found<Option<Injector>>,
    ) -> Found<Vec<Permission>> {
        let Ok(Some(injector)) = injector else {
            return Err(Missing::Absent("there is no injector to check".to_owned()));
        };
        let Injector { namespace, service_account, .. } = injector;
        let user = format!("system:serviceaccount:{namespace}:{service_account}");
        let mut permissions = Vec::new();
        for asked in injector.needs() {
            let [verb, _, resource, _, name] = asked;
            let what = format!("{verb} {resource} {name}").trim_end().to_owned();
            permissions.push(Permission { what, allowed: self.may(Some(&user), asked).await? });
        }
        Ok(permissions)
    }

    fn server(&self, webhook: &Webhook, service: &Found<Value>) -> Result<Server, String> {
        let server = Server::of(webhook, service.as_ref().ok(), self.vantage)?;
        if tls::certificates(webhook.bundle()).is_empty() {
            return Err("no certificate is trusted for it".to_owned());
        }
        Ok(server)
    }

    async fn contact(
        &self,
        webhook: &Webhook,
        server: &Result<Server, String>,
        injector: &Found<Option<Injector>>,
    ) -> Contact {
        let contact = match server {
            Ok(server) => server.contact(webhook.bundle()).await,
            Err(why) => Contact::Unreached(why.clone()),
        };
        match (contact, injector, server) {
            (Contact::Unreached(why), Ok(Some(injector)), Ok(server)) => {
                let Injector { namespace, secret, .. } = injector;
                let path = format!("/api/v1/namespaces/{namespace}/secrets/{secret}");
                match self.get(&path).await {
                    Ok(secret) => server.kept(webhook.bundle(), &secret, why),
                    Err(_) => Contact::Unreached(why),
                }
            }
            (contact, ..) => contact,
        }
    }

    /// Sends a test pod. If the user may not create pods, or the pod gets no sidecar, it calls the
    /// webhook directly.
    async fn trial(
        &self,
        webhook: &Webhook,
        subject: &Subject,
        asking: &Found<Vec<String>>,
        server: Option<Server>,
    ) -> Trial {
        let labelled = asking.as_ref().ok().and_then(|names| names.first());
        let namespace = subject.namespace.as_ref().or(labelled);
        let namespace = namespace.map_or("default", String::as_str).to_owned();
        let ask = async || match &server {
            Some(server) => server.asked(webhook.bundle(), &trial::question(&namespace)).await,
            None => None,
        };
        match self.may(None, ["create", "", "pods", &namespace, ""]).await {
            Ok(true) => {
                let came = self.tried(&namespace).await;
                let directly = match &came {
                    Came::Left(_) => ask().await,
                    Came::Injected(_) | Came::Refused(_) => None,
                };
                Trial::ThroughApiserver { namespace, came, directly }
            }
            Ok(false) => match ask().await {
                Some(came) => Trial::Directly(came),
                None => Trial::Untried(format!("this user may not create pods in {namespace}")),
            },
            Err(missing) => Trial::Untried(missing.to_string()),
        }
    }

    async fn tried(&self, namespace: &str) -> Came {
        let path = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
        let answer = api::post_heeding(self.client.as_ref(), &path, &trial::pod()).await;
        match answer {
            Ok((headers, pod)) => trial::stored(&pod, &warnings(&headers)),
            Err(error) => Came::Refused(Missing::from(error).to_string()),
        }
    }

    /// Returns the namespaces with injection.
    async fn namespaces(&self) -> Found<Vec<String>> {
        let mut names = Vec::new();
        let path = format!("/api/v1/namespaces?labelSelector={INJECTION}&");
        self.each(&path, |namespace| {
            names.extend(namespace["metadata"]["name"].as_str().map(str::to_owned));
        })
        .await?;
        Ok(names)
    }

    async fn pods(&self, asking: Found<Vec<String>>) -> Found<Pods> {
        let mut pods = Pods::new(asking);
        self.each("/api/v1/pods?", |pod| pods.add(pod)).await?;
        Ok(pods)
    }

    async fn kubelets(&self) -> Found<Kubelets> {
        let mut kubelets = Kubelets::new();
        self.each("/api/v1/nodes?", |node| {
            let version = node["status"]["nodeInfo"]["kubeletVersion"].as_str();
            *kubelets.entry(version.unwrap_or("unknown").to_owned()).or_default() += 1;
        })
        .await?;
        Ok(kubelets)
    }

    /// Calls `show` for every object of a list, page by page. `path` must have a query.
    async fn each(&self, path: &str, mut show: impl FnMut(&Value)) -> Found<()> {
        let mut rest = String::new();
        for _ in 0..PAGES_MAX {
            let page = self.get(&format!("{path}limit={PAGE_OBJECTS}{rest}")).await?;
            page["items"].as_array().into_iter().flatten().for_each(&mut show);
            match page["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) {
                None => return Ok(()),
                Some(token) => rest = format!("&continue={token}"),
            }
        }
        Err(Missing::Failed(format!("the list has more than {} objects", PAGES_MAX * PAGE_OBJECTS)))
    }
}

/// Returns the group versions of an API group list.
fn served(groups: &Value) -> Vec<String> {
    let groups = groups["groups"].as_array().into_iter().flatten();
    let versions = groups.flat_map(|group| group["versions"].as_array().into_iter().flatten());
    versions.filter_map(|version| version["groupVersion"].as_str().map(str::to_owned)).collect()
}

/// Returns the texts of the response's warning headers. Each is quoted, after a code and a name.
fn warnings(headers: &HeaderMap) -> Vec<String> {
    let all = headers.get_all(header::WARNING).iter().filter_map(|value| value.to_str().ok());
    let text = |warning: &str| {
        let quoted = warning.split_once('"').map(|(_, rest)| rest);
        quoted.and_then(|rest| rest.rsplit_once('"')).map_or(warning, |(text, _)| text).to_owned()
    };
    all.map(text).collect()
}

// === impl Missing ===

impl From<Error> for Missing {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused {
                code: StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED,
                message,
                ..
            } => Self::Forbidden(message),
            Error::Refused { code: StatusCode::NOT_FOUND, message, .. } => Self::Absent(message),
            Error::Refused { message, .. } => Self::Failed(message),
            other => Self::Failed(Chain(&other).to_string()),
        }
    }
}

// === impl Facts ===

impl Facts {
    /// Returns facts in which only the version may be known.
    fn unknown(apiserver: String, version: Found<String>) -> Self {
        fn not_asked<T>() -> Found<T> {
            Err(Missing::Absent("there is no known webhook".to_owned()))
        }
        Self {
            apiserver,
            version,
            groups: not_asked(),
            user: not_asked(),
            reads: not_asked(),
            webhook: not_asked(),
            contact: Contact::NoWebhook,
            trial: Trial::NoWebhook,
            injector: not_asked(),
            injector_permissions: not_asked(),
            pods: not_asked(),
            kubelets: not_asked(),
        }
    }
}
