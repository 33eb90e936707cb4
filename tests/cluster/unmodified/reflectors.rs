//! kube-rs' reflectors, in this process: every first list that its watchers support.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::StreamExt;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::reflector::{Store, store};
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;

use super::program::Finding;

const READY_LIMIT: Duration = Duration::from_secs(90);
const SETTLE_LIMIT: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(50);

/// Reflectors that run until they are dropped.
#[derive(Default)]
pub struct Reflectors {
    copies: BTreeMap<&'static str, Copy>,
    notes: Arc<Mutex<Notes>>,
    tasks: Vec<JoinHandle<()>>,
}

/// Reads the content of a reflector.
type Copy = Box<dyn Fn() -> BTreeMap<String, String> + Send>;

#[derive(Debug, Default)]
struct Notes {
    counts: BTreeMap<String, u64>,
    errors: Vec<String>,
}

// === impl Reflectors ===

impl Reflectors {
    /// Starts them all and waits until each has its first state.
    pub async fn start(kubeconfig: &Path, namespace: &str) -> Result<Self> {
        let options = KubeConfigOptions::default();
        let config = Kubeconfig::read_from(kubeconfig)?;
        let config = kube::Config::from_custom_kubeconfig(config, &options).await?;
        let client = Client::try_from(config)?;
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let maps: Api<ConfigMap> = Api::namespaced(client, namespace);
        let inside = || Config::default().labels("churn=in");
        let mut all = Self::default();
        all.follow("pods@paged", &pods, Config::default()).await?;
        all.follow("pods-in@streamed", &pods, inside().streaming_lists()).await?;
        all.follow("configmaps@any", &maps, Config::default().any_semantic()).await?;
        all.follow("configmaps-in@paged", &maps, inside()).await?;
        Ok(all)
    }

    async fn follow<K>(&mut self, name: &'static str, api: &Api<K>, config: Config) -> Result<()>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
        K: Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let (reader, writer) = store();
        let notes = self.notes.clone();
        let stream = reflector(writer, watcher(api.clone(), config)).default_backoff();
        self.tasks.push(tokio::spawn(stream.for_each(move |event| {
            let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
            match event {
                Ok(event) => *notes.counts.entry(kind(&event).to_owned()).or_default() += 1,
                Err(error) => notes.errors.push(format!("{name}: {error}")),
            }
            std::future::ready(())
        })));
        let ready = tokio::time::timeout(READY_LIMIT, reader.wait_until_ready()).await;
        ready.with_context(|| format!("{name}: never ready"))??;
        self.copies.insert(name, Box::new(move || held(&reader)));
        Ok(())
    }

    /// Lets them catch up, and returns their result.
    pub async fn settle(self) -> Finding {
        let all_hold = || self.copies.values().all(|copy| copy().contains_key("marker"));
        let settled = async {
            while !all_hold() {
                tokio::time::sleep(POLL).await;
            }
        };
        // The content of a reflector shows that it has not settled.
        let _ = tokio::time::timeout(SETTLE_LIMIT, settled).await;
        let held = self.copies.iter().map(|(name, copy)| ((*name).to_owned(), copy()));
        let caches = held.collect();
        let notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        Finding { caches, counts: notes.counts.clone(), errors: notes.errors.clone() }
    }
}

impl Drop for Reflectors {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

fn held<K>(reader: &Store<K>) -> BTreeMap<String, String>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    let version = |object: &K| object.resource_version().unwrap_or_default();
    reader.state().iter().map(|object| (object.name_any(), version(object))).collect()
}

fn kind<K>(event: &Event<K>) -> &'static str {
    match event {
        Event::Apply(_) => "applied",
        Event::Delete(_) => "deleted",
        Event::Init => "begun",
        Event::InitApply(_) => "initially applied",
        Event::InitDone => "initially done",
    }
}
