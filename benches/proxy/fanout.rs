//! The cost of one change for a thousand watchers: apiserver against Listless.
//!
//! The apiserver's work on the writes themselves is measured while Listless delivers, and
//! subtracted.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::{
    bare::{self, Kept},
    cell::{Gate, median, ratios},
    form::Form,
    options::Options,
    setup::{IdleLoad, Setup},
    watchers::Watchers,
    wire::Connection,
    writer::Writer,
};

/// The number of watchers of each slot.
pub(crate) const WATCHERS: usize = 1_000;
/// The number of HTTP/2 connections, and of idle watchers on each.
pub(crate) const SHARED: (usize, usize) = (100, 100);
/// The rate is low, because all watchers decrypt on the servers' cores.
const EVENTS_PER_SECOND: f64 = 10.0;
const ROUNDS_MAX: u32 = 3;
/// The length of a slot, as a multiple of a request slot: CPU time has a resolution of 10 ms.
const SLOT_TIMES: u32 = 2;

/// A size of the changed object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) what: &'static str,
    label: &'static str,
    bytes: usize,
    /// Its gate, if any.
    pub(crate) gate: Option<Gate>,
}

/// The measured sizes.
pub(crate) const SIZES: [Size; 2] = [
    Size {
        what: "15 KB",
        label: "large",
        bytes: 14_600,
        // Or four fifths of the bare server's ratio.
        gate: Some(Gate { times: 2.5, ceiling: 2.5 / 0.8 }),
    },
    Size { what: "2 KB", label: "small", bytes: 1_600, gate: None },
];

/// The result.
#[derive(Clone, Debug)]
pub(crate) struct Fanout {
    pub(crate) size: Size,
    /// Bytes of a delivered event.
    pub(crate) event_bytes: usize,
    /// Delivered events on each side.
    pub(crate) delivered: [u64; 2],
    /// CPU time per delivered event in microseconds, per round.
    pub(crate) apiserver: Vec<f64>,
    pub(crate) listless: Vec<f64>,
    /// The same for a server from the same libraries that only has the event.
    pub(crate) bare: Vec<f64>,
}

/// The memory of one idle watcher, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdleMemory {
    /// With its own HTTP/1.1 connection.
    pub(crate) own_connection: f64,
    /// Of [`SHARED`] watchers on HTTP/2 connections.
    pub(crate) shared: f64,
    /// In a server from the same libraries, with its own HTTP/1.1 connection.
    pub(crate) bare: f64,
}

/// CPU time of one slot per delivered event, in microseconds.
struct Slot {
    delivered: u64,
    /// The event that each watcher received once.
    event: Vec<u8>,
    apiserver: f64,
    listless: f64,
}

/// Measures one size in rounds of AB, BA.
pub(crate) async fn measure(
    size: Size,
    setup: &Setup,
    options: &Options,
    idle: IdleLoad,
) -> Result<Fanout> {
    let writer = Writer::new(setup, size.label, 1, size.bytes).await?;
    let (event_bytes, delivered) = (0, [0; 2]);
    let (apiserver, listless, bare) = Default::default();
    let mut found = Fanout { size, event_bytes, delivered, apiserver, listless, bare };
    for round in 0..options.rounds.min(ROUNDS_MAX) {
        let sides = [round % 2 == 0, round % 2 == 1];
        let (mut straight, mut through) = (None, None);
        for is_straight in sides {
            let slot = slot(&writer, setup, options, idle, is_straight).await?;
            *(if is_straight { &mut straight } else { &mut through }) = Some(slot);
        }
        if let (Some(straight), Some(through)) = (straight, through) {
            found.add(&straight, &through);
            found.bare.push(bare_slot(setup, &through).await?);
        }
    }
    Ok(found)
}

/// Measures the memory of idle watchers.
pub(crate) async fn idle_memory(setup: &Setup) -> Result<IdleMemory> {
    let writer = Writer::new(setup, "idle", 1, 100).await?;
    let (own_connection, _open) = added_by_idle(setup, &writer, None).await?;
    let (shared, _) = added_by_idle(setup, &writer, Some(SHARED)).await?;
    Ok(IdleMemory { own_connection, shared, bare: bare_memory(setup).await? })
}

/// Opens watchers, which may share connections. Returns also Listless's memory for each, in bytes.
async fn added_by_idle(
    setup: &Setup,
    writer: &Writer,
    shared: Option<(usize, usize)>,
) -> Result<(f64, Watchers)> {
    let target = writer.watch_from(&writer.settled(setup).await?);
    let (through, served) = (&setup.through, Some("hit"));
    let before = setup.listless_resident_bytes()?;
    let mut watchers = match shared {
        None => Watchers::open(through, &target, WATCHERS, served).await?,
        Some(shared) => Watchers::open_shared(through, &target, shared, served).await?,
    };
    setup.settle().await;
    let added = setup.listless_resident_bytes()?.saturating_sub(before);
    // They do follow.
    writer.settled(setup).await?;
    watchers.have_received(1).await?;
    Ok((added as f64 / watchers.count() as f64, watchers))
}

/// Returns a bare server's memory per idle watcher with its own connection, in bytes.
async fn bare_memory(setup: &Setup) -> Result<f64> {
    let (form, target) = (Form::Json, bare::WATCH.to_owned());
    let bare = setup.bare(std::iter::once(Kept { form, target, body: "{}\n".into() }))?;
    let before = bare.resident_bytes()?;
    let _watchers = Watchers::open(&bare.endpoint, bare::WATCH, WATCHERS, None).await?;
    setup.settle().await;
    Ok(bare.resident_bytes()?.saturating_sub(before) as f64 / WATCHERS as f64)
}

/// Returns a bare server's cost per event for as many of the same events, in microseconds.
async fn bare_slot(setup: &Setup, through: &Slot) -> Result<f64> {
    let (form, target) = (Form::Json, bare::WATCH.to_owned());
    let event = Kept { form, target, body: through.event.clone().into() };
    let bare = setup.bare(std::iter::once(event))?;
    let mut watchers = Watchers::open(&bare.endpoint, bare::WATCH, WATCHERS, None).await?;
    setup.settle().await;
    let before = bare.cpu_seconds()?;
    let events = through.delivered / WATCHERS as u64;
    let mut ticks = tokio::time::interval(Duration::from_secs_f64(EVENTS_PER_SECOND.recip()));
    let mut teller = Connection::open(&bare.endpoint)?;
    let request = bare.endpoint.request(bare::TELL);
    for _ in 0..events {
        ticks.tick().await;
        teller.exchange(&request)?;
    }
    watchers.have_received(events).await?;
    Ok((bare.cpu_seconds()? - before) * 1e6 / through.delivered as f64)
}

async fn slot(
    writer: &Writer,
    setup: &Setup,
    options: &Options,
    idle: IdleLoad,
    is_straight: bool,
) -> Result<Slot> {
    let target = writer.watch_from(&writer.settled(setup).await?);
    let (endpoint, served) =
        if is_straight { (&setup.direct, None) } else { (&setup.through, Some("hit")) };
    let mut told = Watchers::open(&setup.direct, &target, 1, None).await?;
    let mut watchers = Watchers::open(endpoint, &target, WATCHERS, served).await?;
    setup.settle().await;
    let before = (setup.apiserver_cpu()?, setup.listless_cpu()?, Instant::now());
    let events = writer.write_for(options.slot * SLOT_TIMES, EVENTS_PER_SECOND).await?;
    watchers.have_received(events).await?;
    let elapsed = before.2.elapsed().as_secs_f64();
    let (apiserver, listless) = (setup.apiserver_cpu()?, setup.listless_cpu()?);
    told.have_received(events).await?;
    let (first, expected) = (watchers.first().text, told.first().text);
    ensure!(first == expected, "the first watcher received another event than the apiserver's own");
    let delivered = events * WATCHERS as u64;
    let micros = |seconds: f64| seconds * 1e6 / delivered as f64;
    Ok(Slot {
        delivered,
        event: first.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default().to_vec(),
        apiserver: micros(apiserver - before.0 - idle.apiserver * elapsed),
        listless: micros(listless - before.1 - idle.listless * elapsed),
    })
}

// === impl Fanout ===

impl Fanout {
    /// Returns apiserver ÷ Listless per round, sorted.
    pub(crate) fn ratios(&self) -> Vec<f64> {
        ratios(&self.apiserver, &self.listless)
    }

    /// Returns apiserver ÷ the bare server: the limit of this machine.
    pub(crate) fn ceiling(&self) -> f64 {
        median(&ratios(&self.apiserver, &self.bare))
    }

    /// Returns the events per CPU second of Listless.
    pub(crate) fn per_second(&self) -> f64 {
        1e6 / median(&self.listless)
    }

    fn add(&mut self, straight: &Slot, through: &Slot) {
        self.event_bytes = through.event.len();
        self.delivered[0] += straight.delivered;
        self.delivered[1] += through.delivered;
        // The apiserver's work while Listless delivered was for the writes.
        self.apiserver.push(straight.apiserver - through.apiserver);
        self.listless.push(through.listless);
    }
}
