//! The names of the users behind tokens, for people who read the report. No decision depends on them.
//!
//! Invariants: the apiserver names the user of a token that it has accepted, at most once in ten
//! minutes. A token is known by its keyed hash. The number and length of names are bounded.

use std::{sync::Arc, time::Duration};

use http::{HeaderValue, header};
use serde::Deserialize;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use super::{
    authorize::Asker,
    identify::{BearerId, Caller},
    self_review,
};
use crate::{
    hash::RandomState,
    upstream::{Client, Lane},
};

/// The names; cheap to clone.
#[derive(Clone)]
pub struct CallerNames {
    client: Arc<dyn Client>,
    names: moka::future::Cache<BearerId, CallerName, RandomState>,
    /// The permits for concurrent questions.
    places: Arc<Semaphore>,
}

/// A name, and the time of its question.
#[derive(Clone)]
pub struct CallerName {
    /// `None` if it is not known, or not yet.
    name: Option<Arc<str>>,
    asked_at: Instant,
}

/// The part of a user that is shown.
#[derive(Deserialize)]
struct UserInfo {
    username: String,
}

/// The time for which a name, or its absence, is kept.
const NAME_TTL: Duration = Duration::from_secs(600);

/// The limit of remembered names.
const NAMES_MAX: u64 = 10_000;

/// The maximum length of a name, in bytes. Longer ones are not shown.
const NAME_BYTES_MAX: usize = 128;

/// The limit of concurrent questions; the name of a further token is asked for with a later request.
const PLACES: usize = 16;

/// The timeout of a question.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The prefix of a service account's user name; its namespace and name follow, with a colon between.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

// === impl CallerNames ===

impl CallerNames {
    /// Creates an empty table. The client sends requests as they are.
    pub fn new(client: Arc<dyn Client>) -> Self {
        let names = moka::future::Cache::builder()
            .max_capacity(NAMES_MAX)
            .build_with_hasher(RandomState::default());
        Self { client, names, places: Arc::new(Semaphore::new(PLACES)) }
    }

    /// Returns what is known of the caller's name.
    pub async fn of(&self, caller: Caller) -> Option<CallerName> {
        let Caller::Bearer(id) = caller else { return None };
        self.names.get(&id).await
    }

    /// Asks for the name of a caller whose token the apiserver has just accepted, unless that was done
    /// lately. It does not wait for the response. `known` is what was known before.
    pub async fn learn(&self, asker: &Asker, known: Option<CallerName>) {
        let Some((id, credential)) = asker.bearer() else { return };
        if known.as_ref().is_some_and(CallerName::is_recent) {
            return;
        }
        let Ok(place) = self.places.clone().try_acquire_owned() else { return };
        Box::pin(self.ask_again(id, credential, known, place)).await;
    }

    async fn ask_again(
        &self,
        id: BearerId,
        credential: &HeaderValue,
        known: Option<CallerName>,
        place: OwnedSemaphorePermit,
    ) {
        let asked_at = Instant::now();
        // The old name stays until there is a new one. Of concurrent requests only one asks.
        let unknown = async { CallerName { name: known.and_then(|known| known.name), asked_at } };
        let is_due = |held: &CallerName| !held.is_recent();
        if !self.names.entry(id).or_insert_with_if(unknown, is_due).await.is_fresh() {
            return;
        }
        let (names, client, credential) =
            (self.names.clone(), self.client.clone(), credential.clone());
        tokio::spawn(async move {
            let name = tokio::time::timeout(TIMEOUT, ask(&*client, credential)).await;
            if let Ok(Some(name)) = name {
                names.insert(id, CallerName { name: Some(name), asked_at }).await;
            }
            drop(place);
        });
    }
}

// === impl CallerName ===

impl CallerName {
    /// Returns the name, if it is known.
    pub fn name(&self) -> Option<&Arc<str>> {
        self.name.as_ref()
    }

    fn is_recent(&self) -> bool {
        self.asked_at.elapsed() < NAME_TTL
    }
}

async fn ask(client: &dyn Client, credential: HeaderValue) -> Option<Arc<str>> {
    let mut request = self_review::request()?;
    request.headers_mut().insert(header::AUTHORIZATION, credential);
    let response = client.send(request, Lane::Short).await.ok()?;
    if !response.status().is_success() {
        return None;
    }
    let body = response.into_body().collect(self_review::RESPONSE_BYTES_MAX).await.ok()?;
    let user: UserInfo = serde_json::from_str(self_review::user(&body)?).ok()?;
    shown(&user.username)
}

/// Returns `namespace/name` for a service account, and the user name for any other user.
fn shown(user: &str) -> Option<Arc<str>> {
    if user.len() > NAME_BYTES_MAX || user.chars().any(char::is_control) {
        return None;
    }
    let account = user.strip_prefix(SERVICE_ACCOUNT).and_then(|account| account.split_once(':'));
    Some(match account {
        Some((namespace, name)) => format!("{namespace}/{name}").into(),
        None => user.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_accounts_are_shown_with_their_namespace() {
        let shown = |user: &str| shown(user).map(|name| name.to_string());
        assert_eq!(shown("system:serviceaccount:shop:web").as_deref(), Some("shop/web"));
        assert_eq!(shown("jane@example.com").as_deref(), Some("jane@example.com"));
        assert_eq!(shown("a\nb"), None);
        assert_eq!(shown(&"x".repeat(NAME_BYTES_MAX + 1)), None);
    }
}
