//! Events that report the outcome to the owners of pods.
//!
//! A task of its own sends them, never a response. The same event of the same owner is sent once an
//! hour, with a limit per minute; further ones are dropped and counted. Each network has half of the
//! limits, because any host may reach the port. Invariants: a path contains only names that
//! Kubernetes allows. Unless the apiserver proved its identity, a caller's text is not sent, except
//! such names.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{sync::mpsc, time::Instant};

use super::{
    api,
    patch::{Note, Skip, SkipReason},
    review::{Owner, Verdict},
};
use crate::{
    lifecycle::Draining,
    metrics::{Limit, Metrics},
    shares::Network,
    upstream::Client,
};

/// The queue of verdicts for the task.
#[derive(Clone)]
pub struct Events {
    queue: mpsc::Sender<Event>,
    sent: SentEvents,
    metrics: Metrics,
    asker: Asker,
}

/// The knowledge about the sender of reviews.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// The apiserver: its client certificate is required.
    Proven,
    /// Any host that reaches the port.
    Anybody,
}

/// The task that sends queued events.
pub struct Sender {
    client: Arc<dyn Client>,
    queue: mpsc::Receiver<Event>,
    sent: SentEvents,
}

/// The recent events, which decide whether another one is due.
#[derive(Clone, Default)]
struct SentEvents(Arc<Mutex<SentTable>>);

#[derive(Default)]
struct SentTable {
    recent: HashMap<(Owner, &'static str), Sent>,
    /// Namespaces in which events were refused recently.
    refused: HashMap<String, Instant>,
}

struct Sent {
    at: Instant,
    /// The network of the review.
    of: Network,
}

/// The answer to whether an event is due.
enum Due {
    Yes,
    SentBefore,
    TooMany,
}

struct Event {
    namespace: String,
    owner: Owner,
    reason: &'static str,
    kind: &'static str,
    message: String,
}

/// The maximum number of queued events.
const QUEUE_MAX: usize = 128;
/// The maximum number of events per minute; for one network half of it.
const PER_MINUTE_MAX: usize = 120;
const MINUTE: Duration = Duration::from_secs(60);
/// The time for which the same event is not repeated.
const RECENT: Duration = Duration::from_secs(3600);
/// The maximum number of events remembered for that; for one network half of it.
const RECENT_MAX: usize = 2048;
/// The pause for a namespace after a refusal there.
const REFUSED: Duration = Duration::from_secs(60);
/// The maximum number of namespaces remembered for that.
const REFUSED_MAX: usize = 256;
/// The maximum length of a namespace's or object's name.
const LABEL_LENGTH_MAX: usize = 63;
const NAME_LENGTH_MAX: usize = 253;

/// Returns the queue and the task that reads it.
pub fn channel(client: Arc<dyn Client>, metrics: Metrics, asker: Asker) -> (Events, Sender) {
    let (sender, receiver) = mpsc::channel(QUEUE_MAX);
    let sent = SentEvents::default();
    let events = Events { queue: sender, sent: sent.clone(), metrics, asker };
    (events, Sender { client, queue: receiver, sent })
}

// === impl Events ===

impl Events {
    /// Queues a verdict about a review of this network for the pod's owner, if there is one.
    pub fn tell(&self, verdict: &Verdict, of: Network) {
        let Verdict { namespace, owner, .. } = verdict;
        let is_left_alone = |skip: &Skip| skip.reason == SkipReason::SystemNamespace;
        if verdict.dry_run
            || !is_label(namespace)
            || !owner.is_nameable()
            || verdict.outcome.as_ref().is_err_and(is_left_alone)
        {
            return;
        }
        let (reason, kind, message) = self.words(&verdict.outcome);
        let (namespace, owner) = (namespace.clone(), owner.clone());
        let event = Event { namespace, owner, reason, kind, message };
        // Only an event with a place counts as sent.
        let place = self.queue.try_reserve().ok();
        let due = place.map(|place| (place, self.sent.lock().take(&event, of, Instant::now())));
        match due {
            Some((place, Due::Yes)) => place.send(event),
            Some((_, Due::SentBefore)) => {}
            Some((_, Due::TooMany)) | None => self.metrics.limit_reached(Limit::InjectorEvents),
        }
    }

    /// Returns an event's reason, type and message. Text of the pod is included only if the
    /// apiserver sent it.
    fn words(&self, outcome: &Result<Vec<Note>, Skip>) -> (&'static str, &'static str, String) {
        let whole = self.asker == Asker::Proven;
        match outcome {
            Ok(notes) => {
                let note = |note: &Note| match whole {
                    true => format!("; {note}"),
                    false => format!("; {}", note.as_str()),
                };
                let notes: String = notes.iter().map(note).collect();
                ("Injected", "Normal", format!("a sidecar was injected into the pod{notes}"))
            }
            Err(skip) => {
                let why = if whole { skip.to_string() } else { skip.reason.sentence().to_owned() };
                ("InjectionSkipped", "Warning", format!("{}: {why}", skip.reason.as_str()))
            }
        }
    }
}

// === impl Sender ===

impl Sender {
    /// Sends events until the drain begins.
    pub async fn run(mut self, mut draining: Draining) {
        loop {
            let event = tokio::select! {
                () = draining.begun() => return,
                event = self.queue.recv() => event,
            };
            let Some(event) = event else { return };
            self.send(event).await;
        }
    }

    async fn send(&self, event: Event) {
        let path = format!("/api/v1/namespaces/{}/events", event.namespace);
        match api::post(self.client.as_ref(), &path, &event.to_json()).await {
            Ok(_) => {}
            Err(error) if error.is_forbidden() => {
                tracing::warn!(%error, "cannot send an event: refused; no events to that namespace \
                                        for a minute");
                self.sent.lock().refused(event, Instant::now());
            }
            Err(error) => tracing::warn!(%error, "cannot send an event"),
        }
    }
}

// === impl SentEvents ===

impl SentEvents {
    fn lock(&self) -> MutexGuard<'_, SentTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl SentTable ===

impl SentTable {
    /// Notes an event as sent, if it is due.
    fn take(&mut self, event: &Event, of: Network, now: Instant) -> Due {
        self.recent.retain(|_, sent| now.duration_since(sent.at) < RECENT);
        self.refused.retain(|_, at| now.duration_since(*at) < REFUSED);
        let key = (event.owner.clone(), event.reason);
        if self.recent.contains_key(&key) {
            return Due::SentBefore;
        }
        let is_full = |part: usize, counts: &dyn Fn(&Sent) -> bool| {
            let counted = || self.recent.values().filter(|sent| counts(sent));
            let is_last_minute = |sent: &&Sent| now.duration_since(sent.at) < MINUTE;
            counted().count() >= RECENT_MAX / part
                || counted().filter(is_last_minute).count() >= PER_MINUTE_MAX / part
        };
        if is_full(1, &|_| true)
            || is_full(2, &|sent| sent.of == of)
            || self.refused.len() >= REFUSED_MAX
            || self.refused.contains_key(&event.namespace)
        {
            return Due::TooMany;
        }
        self.recent.insert(key, Sent { at: now, of });
        Due::Yes
    }

    /// Notes that the apiserver refuses events in this one's namespace.
    fn refused(&mut self, event: Event, now: Instant) {
        self.recent.remove(&(event.owner, event.reason));
        self.refused.insert(event.namespace, now);
    }
}

// === impl Owner ===

impl Owner {
    /// Reports whether every part is a valid object name.
    fn is_nameable(&self) -> bool {
        let is_word = |text: &str, more: &[u8], length_max: usize| {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || more.contains(&byte);
            !text.is_empty() && text.len() <= length_max && text.bytes().all(fits)
        };
        is_word(&self.uid, b"-", LABEL_LENGTH_MAX)
            && is_word(&self.kind, b"", LABEL_LENGTH_MAX)
            && is_word(&self.name, b"-.:", NAME_LENGTH_MAX)
            && is_word(&self.api_version, b"-./", NAME_LENGTH_MAX)
    }
}

/// Reports whether this is a valid namespace name (RFC 1123).
fn is_label(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let ends = !text.starts_with('-') && !text.ends_with('-');
    !text.is_empty() && text.len() <= LABEL_LENGTH_MAX && text.bytes().all(fits) && ends
}

// === impl Event ===

impl Event {
    fn to_json(&self) -> Value {
        let now = jiff::Timestamp::now();
        let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let Owner { api_version, kind, name, uid } = &self.owner;
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": "listless-", "namespace": self.namespace},
            "involvedObject": {
                "apiVersion": api_version,
                "kind": kind,
                "name": name,
                "uid": uid,
                "namespace": self.namespace,
            },
            "type": self.kind,
            "reason": self.reason,
            "message": self.message,
            "source": {"component": "listless-injector"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures_util::future::BoxFuture;
    use http::{Request, Response};

    use super::*;
    use crate::{
        body::Body,
        lifecycle::Drain,
        upstream::{Error, Lane},
    };

    /// Records requests, and refuses those for the namespace `closed`.
    #[derive(Default)]
    struct Apiserver(Mutex<Vec<(String, Value)>>);

    struct Noted(Arc<Apiserver>);

    impl Client for Noted {
        fn send(
            &self,
            request: Request<Body>,
            _: Lane,
        ) -> BoxFuture<'static, Result<Response<Body>, Error>> {
            let apiserver = Arc::clone(&self.0);
            Box::pin(async move {
                let path = request.uri().to_string();
                let body = request.into_body().collect(1 << 20).await.expect("a short body");
                let code = if path.contains("/closed/") { 403 } else { 201 };
                let event = serde_json::from_slice(&body).expect("JSON");
                apiserver.0.lock().unwrap().push((path, event));
                Ok(Response::builder().status(code).body(Body::full("{}")).expect("an answer"))
            })
        }

        fn upgrade(
            &self,
            request: Request<Body>,
        ) -> BoxFuture<'static, Result<Response<Body>, Error>> {
            self.send(request, Lane::Long)
        }
    }

    struct Scene {
        events: Events,
        apiserver: Arc<Apiserver>,
        _drain: Drain,
    }

    impl Scene {
        fn new(asker: Asker) -> Self {
            let (apiserver, drain) = (Arc::<Apiserver>::default(), Drain::new());
            let client = Arc::new(Noted(Arc::clone(&apiserver)));
            let (events, sender) = channel(client, Metrics::new(), asker);
            tokio::spawn(sender.run(drain.watch()));
            Self { events, apiserver, _drain: drain }
        }

        async fn told(&self, verdict: &Verdict) -> Vec<(String, Value)> {
            self.events.tell(verdict, network(1));
            crate::testing::pass(Duration::from_millis(10)).await;
            std::mem::take(&mut *self.apiserver.0.lock().unwrap())
        }
    }

    fn network(last: u8) -> Network {
        std::net::IpAddr::from([10, 0, 0, last]).into()
    }

    fn verdict(namespace: &str, name: &str) -> Verdict {
        let text = |text: &str| text.to_owned();
        Verdict {
            namespace: text(namespace),
            dry_run: false,
            pod: text("web-1"),
            owner: Owner {
                api_version: text("apps/v1"),
                kind: text("ReplicaSet"),
                name: text(name),
                uid: text("0c6f0a5e-1f0b"),
            },
            outcome: Err(Skip {
                reason: SkipReason::PortTaken,
                detail: Some(text("call 555-1234 at once")),
            }),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_no_name_makes_no_request() {
        let scene = Scene::new(Asker::Proven);
        for namespace in
            ["ns1/pods/p1/eviction?x=", "..", "Shop", "a.b", "-a", "", "a\nb", "kube%2f"]
        {
            assert!(scene.told(&verdict(namespace, "web")).await.is_empty(), "{namespace:?}");
        }
        for name in ["", "a/b", "a b", "a\nb", &"x".repeat(254)] {
            assert!(scene.told(&verdict("shop", name)).await.is_empty(), "{name:?}");
        }
        let mut system = verdict("kube-system", "web");
        system.outcome = Err(SkipReason::SystemNamespace.into());
        assert!(scene.told(&system).await.is_empty(), "pods there and their owners get no events");
        let told = scene.told(&verdict("shop", "web")).await;
        assert_eq!(told[0].0, "/api/v1/namespaces/shop/events");
    }

    #[tokio::test(start_paused = true)]
    async fn only_who_is_proven_to_be_the_apiserver_has_its_text_sent() {
        for (asker, is_told) in [(Asker::Proven, true), (Asker::Anybody, false)] {
            let told = Scene::new(asker).told(&verdict("shop", "web")).await;
            let message = told[0].1["message"].as_str().unwrap();
            assert!(message.starts_with("port_taken: a container declares a port"), "{message}");
            assert_eq!(message.contains("555-1234"), is_told, "{message}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_network_leaves_half_of_the_limits_to_the_others() {
        let scene = Scene::new(Asker::Anybody);
        let told = async |network: Network, prefix: &str| {
            for number in 0..PER_MINUTE_MAX {
                scene.events.tell(&verdict("shop", &format!("{prefix}-{number}")), network);
                tokio::task::yield_now().await;
            }
            scene.told(&verdict("shop", "first")).await.len()
        };
        assert_eq!(told(network(1), "a").await, PER_MINUTE_MAX / 2, "the limit of a minute");
        assert_eq!(told(network(2), "b").await, PER_MINUTE_MAX / 2);
        for _ in 0..60 {
            crate::testing::pass(MINUTE).await;
            told(network(1), "c").await;
        }
        crate::testing::pass(MINUTE).await;
        assert!(told(network(2), "d").await > 0, "the limit of an hour");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_holds_for_its_namespace_and_for_a_minute() {
        let scene = Scene::new(Asker::Anybody);
        assert_eq!(scene.told(&verdict("closed", "a")).await.len(), 1);
        assert!(scene.told(&verdict("closed", "b")).await.is_empty());
        assert_eq!(scene.told(&verdict("shop", "c")).await.len(), 1, "others get events as before");
        crate::testing::pass(Duration::from_secs(61)).await;
        assert_eq!(scene.told(&verdict("closed", "a")).await.len(), 1, "and it is retried");
    }
}
