//! Many seeds: each has its own runtime and clock, on one of as many threads as there are
//! processors.

use std::{
    collections::BTreeMap,
    ops::Range,
    panic::catch_unwind,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use tokio::runtime::Builder;

use super::{Report, run};

/// The default number of seeds; an environment variable overrides it.
const RUNS: u64 = 10;

/// `LISTLESS_RUNS` seeds from `LISTLESS_SEED` on; the latter alone selects one seed.
pub(super) fn wanted() -> Range<u64> {
    match (number("LISTLESS_SEED"), number("LISTLESS_RUNS")) {
        (Some(seed), runs) => seed..seed + runs.unwrap_or(1),
        (None, runs) => 1..1 + runs.unwrap_or(RUNS),
    }
}

/// Reports whether the seeds suffice for the checks over all of them.
pub(super) fn are_many(seeds: &Range<u64>) -> bool {
    seeds.end - seeds.start >= RUNS
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is not a number")))
}

/// The result of each seed, up to about the first one with a violation.
pub(super) fn run_all(seeds: Range<u64>) -> BTreeMap<u64, Report> {
    let (next, end) = (AtomicU64::new(seeds.start), seeds.end);
    let reports = Mutex::new(BTreeMap::new());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return;
            }
            let report = run_one(seed);
            if !report.violations.is_empty() {
                next.fetch_max(end, Ordering::Relaxed);
            }
            reports.lock().expect("no panic holds it").insert(seed, report);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    reports.into_inner().expect("no panic holds it")
}

/// The result of a seed; it is the same every time.
pub(super) fn run_one(seed: u64) -> Report {
    let ran = catch_unwind(|| {
        let mut runtime = Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().expect("a runtime");
        runtime.block_on(run(seed))
    });
    ran.unwrap_or_else(|_| Report {
        violations: vec!["a panic, see above".to_owned()],
        ..Report::default()
    })
}
