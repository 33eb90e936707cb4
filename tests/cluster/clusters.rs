//! The control planes that all tests share, one pair per version, and the order in which tests use
//! them.

use std::io::{self, Write};
use std::ops::Deref;
use std::sync::Once;
use std::{panic, thread};

use anyhow::Result;
use tokio::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::dataset::Dataset;
use crate::forms;
use crate::load::Fleet;
use crate::rig::artifact::Built;
use crate::rig::client::Protocol;
use crate::rig::control_plane::{ControlPlane, User, Version, build};
use crate::unmodified::stage::Stage;

/// Set to 1 where a missing tool must fail the suite.
const REQUIRED: &str = "LISTLESS_REQUIRE_CLUSTER";

static CLUSTERS: [Mutex<Option<Cluster>>; 2] = [const { Mutex::const_new(None) }; 2];
/// Clusters whose data has objects of all ages too.
static AGED: [Mutex<Option<Cluster>>; 2] = [const { Mutex::const_new(None) }; 2];
static STAGES: [Mutex<Option<Stage>>; 2] = [const { Mutex::const_new(None) }; 2];
static FLEETS: [Mutex<Option<Fleet>>; 2] = [const { Mutex::const_new(None) }; 2];
/// Tests that measure time need the machine for themselves.
static TURN: RwLock<()> = RwLock::const_new(());

/// A control plane with the data the cases read.
#[derive(Debug)]
pub struct Cluster {
    plane: ControlPlane,
    dataset: Dataset,
}

/// One test's turn with something all tests share.
#[derive(Debug)]
pub struct Turn<T: 'static> {
    shared: MutexGuard<'static, Option<T>>,
    _machine: Machine,
}

/// The share of the machine that a test needs.
#[derive(Debug)]
pub enum Machine {
    /// All of it.
    Alone(#[expect(dead_code, reason = "held, not read")] RwLockWriteGuard<'static, ()>),
    /// Others that mostly wait may run beside it.
    Beside(#[expect(dead_code, reason = "held, not read")] RwLockReadGuard<'static, ()>),
}

// === impl Turn ===

impl<T> Turn<T> {
    async fn take(
        version: Version,
        slots: &'static [Mutex<Option<T>>; 2],
        machine: impl Future<Output = Machine>,
        load: impl AsyncFnOnce(Version) -> Result<T>,
    ) -> Option<Self> {
        if !available(version) {
            return None;
        }
        let machine = machine.await;
        let mut shared = slots[version as usize].lock().await;
        if shared.is_none() {
            *shared = Some(load(version).await.expect("a loaded control plane"));
        }
        Some(Self { shared, _machine: machine })
    }
}

impl<T> Deref for Turn<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.shared.as_ref().expect("filled before the guard is handed out")
    }
}

// === impl Machine ===

impl Machine {
    /// Waits until no other test runs.
    pub async fn alone() -> Self {
        Self::Alone(TURN.write().await)
    }

    /// Waits until no test runs that needs the machine alone.
    pub async fn beside() -> Self {
        Self::Beside(TURN.read().await)
    }
}

// === impl Cluster ===

impl Cluster {
    /// Waits for this test's turn, beside which a test of the other version may run; `None` means
    /// that the machine cannot run a control plane, and the reason was printed.
    pub async fn take(version: Version) -> Option<Turn<Self>> {
        Turn::take(version, &CLUSTERS, Machine::beside(), Self::load).await
    }

    /// The same for a test that measures time.
    pub async fn take_alone(version: Version) -> Option<Turn<Self>> {
        Turn::take(version, &CLUSTERS, Machine::alone(), Self::load).await
    }

    /// The same with objects of all ages in the namespace `ages`.
    pub async fn take_aged(version: Version) -> Option<Turn<Self>> {
        Turn::take(version, &AGED, Machine::beside(), Self::load_aged).await
    }

    async fn load_aged(version: Version) -> Result<Self> {
        let Self { plane, dataset } = Self::load(version).await?;
        let dataset = forms::load(&plane, dataset).await?;
        Ok(Self { plane, dataset })
    }

    async fn load(version: Version) -> Result<Self> {
        let plane = ControlPlane::start(version).await?;
        let dataset = Dataset::load(&plane.client(User::Admin, Protocol::Http1)?).await?;
        Ok(Self { plane, dataset })
    }

    /// The control plane.
    pub fn plane(&self) -> &ControlPlane {
        &self.plane
    }

    /// Its data.
    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }
}

// === impl Fleet ===

impl Fleet {
    /// Waits for a turn with thousands of pods; `None` as for [`Cluster::take`].
    pub async fn take(version: Version) -> Option<Turn<Self>> {
        Turn::take(version, &FLEETS, Machine::beside(), Self::load).await
    }

    /// The same while no other test runs, for a load that would affect others.
    pub async fn take_alone(version: Version) -> Option<Turn<Self>> {
        Turn::take(version, &FLEETS, Machine::alone(), Self::load).await
    }
}

// === impl Stage ===

impl Stage {
    /// Waits for a turn with an empty control plane; `None` as for [`Cluster::take`].
    pub async fn take(version: Version) -> Option<Turn<Self>> {
        Turn::take(version, &STAGES, Machine::beside(), Self::load).await
    }
}

/// Reports whether the machine can run a control plane; if not, prints the reason.
pub fn available(version: Version) -> bool {
    tell_failures_at_once();
    match build(version).expect("a build that works") {
        Built::Here(_) => true,
        Built::Impossible(reason) => {
            skipped("the cluster tests", &reason);
            false
        }
    }
}

/// Makes each failure known when it happens: the suite takes an hour, and its harness keeps them to the
/// end.
fn tell_failures_at_once() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let harness = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let thread = thread::current();
            // Unlike `eprintln`, this is not captured.
            _ = writeln!(io::stderr(), "{}: {info}", thread.name().unwrap_or("a thread"));
            harness(info);
        }));
    });
}

/// Prints that something cannot run here; fails where it is required.
pub fn skipped(what: &str, reason: &str) {
    assert!(std::env::var(REQUIRED).as_deref() != Ok("1"), "{what} cannot run: {reason}");
    eprintln!("SKIPPED {what}: {reason} (set {REQUIRED}=1 to make this a failure)");
}
