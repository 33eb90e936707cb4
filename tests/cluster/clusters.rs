//! The control planes all tests share, one per version, and the turns tests take.

use anyhow::Result;
use tokio::sync::{Mutex, MutexGuard};

use crate::dataset::Dataset;
use crate::rig::artifact::Built;
use crate::rig::client::Protocol;
use crate::rig::control_plane::{ControlPlane, User, Version, build};

/// Set to 1 where a missing tool must fail the suite.
const REQUIRED: &str = "LISTLESS_REQUIRE_CLUSTER";

static OLD: Mutex<Option<Loaded>> = Mutex::const_new(None);
static MODERN: Mutex<Option<Loaded>> = Mutex::const_new(None);
/// Measured loads and quiet clusters need the machine for themselves.
static TURN: Mutex<()> = Mutex::const_new(());

#[derive(Debug)]
struct Loaded {
    plane: ControlPlane,
    dataset: Dataset,
}

/// One test's turn with a loaded control plane.
#[derive(Debug)]
pub struct Cluster {
    loaded: MutexGuard<'static, Option<Loaded>>,
    _turn: MutexGuard<'static, ()>,
}

// === impl Cluster ===

impl Cluster {
    /// Waits for this test's turn; `None` means that the machine cannot run a control plane, which
    /// was printed.
    pub async fn take(version: Version) -> Option<Self> {
        if !available(version) {
            return None;
        }
        let turn = TURN.lock().await;
        let slot = match version {
            Version::V1_30 => &OLD,
            Version::V1_36 => &MODERN,
        };
        let mut loaded = slot.lock().await;
        if loaded.is_none() {
            *loaded = Some(load(version).await.expect("a loaded control plane"));
        }
        Some(Self { loaded, _turn: turn })
    }

    /// The control plane.
    pub fn plane(&self) -> &ControlPlane {
        &self.loaded().plane
    }

    /// Its data.
    pub fn dataset(&self) -> &Dataset {
        &self.loaded().dataset
    }

    fn loaded(&self) -> &Loaded {
        self.loaded.as_ref().expect("filled before the guard is handed out")
    }
}

async fn load(version: Version) -> Result<Loaded> {
    let plane = ControlPlane::start(version).await?;
    let client = plane.client(User::Admin, Protocol::Http1)?;
    let dataset = Dataset::load(&client).await?;
    Ok(Loaded { plane, dataset })
}

fn available(version: Version) -> bool {
    match build(version).expect("a build that works") {
        Built::Here(_) => true,
        Built::Impossible(reason) => {
            skipped("the cluster tests", &reason);
            false
        }
    }
}

/// Says that something cannot run here; fails where it is required.
pub fn skipped(what: &str, reason: &str) {
    assert!(std::env::var(REQUIRED).as_deref() != Ok("1"), "{what} cannot run: {reason}");
    eprintln!("SKIPPED {what}: {reason} (set {REQUIRED}=1 to make this a failure)");
}
