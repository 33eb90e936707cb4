//! The memory of a sidecar whose workload does nothing, in all its processes.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use http::Method;
use serde_json::json;

use crate::{
    rig::{
        client::Request,
        process::{memory_bytes, resident_bytes},
    },
    setup::Setup,
};

const ACCOUNT: &str = "/api/v1/namespaces/load/serviceaccounts";

/// The memory of one process.
pub(crate) struct Memory {
    pub(crate) process: &'static str,
    pub(crate) resident_bytes: u64,
    /// The resident bytes; of a page that several processes share, each has its part.
    pub(crate) proportional_bytes: u64,
}

/// Starts a sidecar for a new service account, and measures it once its periodic tasks have run.
pub(crate) async fn idle_memory(setup: &Setup) -> Result<[Memory; 2]> {
    let pod = tempfile::TempDir::new()?;
    let account = pod.path().join("account");
    make_account(setup, &account).await?;
    let sidecar = setup.sidecar(&account, pod.path()).await?;
    setup.settle_idle().await;
    let supervisor = sidecar.id();
    Ok([memory("supervisor", supervisor)?, memory("worker", only_child(supervisor)?)?])
}

fn memory(process: &'static str, id: u32) -> Result<Memory> {
    let resident_bytes = resident_bytes(id)?;
    let proportional_bytes = memory_bytes(id, "smaps_rollup", "Pss:")?;
    Ok(Memory { process, resident_bytes, proportional_bytes })
}

/// Creates a service account, and its files as in a pod.
async fn make_account(setup: &Setup, folder: &Path) -> Result<()> {
    let client = setup.writing_client()?;
    let post = async |path: &str, object| {
        client.send(Request::new(Method::POST, path).json(&object)).await?.successful()?.json()
    };
    post(ACCOUNT, json!({"metadata": {"name": "idle"}})).await?;
    let token = post(&format!("{ACCOUNT}/idle/token"), json!({"spec": {}})).await?;
    let token = token["status"]["token"].as_str().context("no token")?;
    fs::create_dir(folder)?;
    fs::write(folder.join("ca.crt"), setup.apiserver()?.authorities_pem())?;
    fs::write(folder.join("namespace"), "load")?;
    Ok(fs::write(folder.join("token"), token)?)
}

/// Returns the process that another one has started.
fn only_child(process: u32) -> Result<u32> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children"))?;
    Ok(children.trim().parse()?)
}
