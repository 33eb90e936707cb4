//! A client connection as the HTTP library reads it: checked, counted, and with a timeout for
//! heads.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Instant, Sleep};

use super::guard::{Guard, Verdict};
use crate::{
    connection_limit,
    metrics::{Metrics, Presence, Protocol},
    stream::{Observed, Observer},
};

/// A byte stream that frees its connection slot when it is dropped, tunnels included.
pub(super) type Socket<S> = Observed<S, SocketGuard>;

/// The checks and the counters of a connection.
pub(super) struct SocketGuard {
    /// The guard, for HTTP/1 only.
    guard: Option<HeadGuard>,
    /// The connection slot; `None` inside a tunnel, whose outer connection has it.
    slot: Option<SocketSlot>,
}

/// A connection slot and the record of its owner.
pub(super) struct SocketSlot {
    metrics: Metrics,
    _slot: connection_limit::ConnectionSlot,
    _present: Presence,
}

/// The framing guard, and the timeout of a head from its first byte.
struct HeadGuard {
    guard: Guard,
    timeout: Duration,
    deadline: Option<Pin<Box<Sleep>>>,
}

/// Guards the heads of a connection's requests.
pub(super) fn http1<S>(
    stream: S,
    slot: Option<SocketSlot>,
    head_timeout: Duration,
) -> (Socket<S>, Verdict) {
    let guard = Guard::new();
    let verdict = guard.verdict();
    let guard = Some(HeadGuard { guard, timeout: head_timeout, deadline: None });
    (Observed::new(stream, SocketGuard { guard, slot }), verdict)
}

/// Counts a connection whose framing the HTTP library checks.
pub(super) fn http2<S>(stream: S, slot: Option<SocketSlot>) -> Socket<S> {
    Observed::new(stream, SocketGuard { guard: None, slot })
}

// === impl SocketSlot ===

impl SocketSlot {
    pub(super) fn new(
        metrics: &Metrics,
        protocol: Protocol,
        slot: connection_limit::ConnectionSlot,
    ) -> Self {
        let present = metrics.client_connection(protocol);
        Self { metrics: metrics.clone(), _slot: slot, _present: present }
    }
}

// === impl SocketGuard ===

impl Observer for SocketGuard {
    fn received(&mut self, bytes: &[u8]) {
        if let Some(slot) = &self.slot {
            slot.metrics.client_received(bytes.len() as u64);
        }
        if let Some(guard) = &mut self.guard {
            guard.observe(bytes);
        }
    }

    fn poll_failure(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        match &mut self.guard {
            Some(guard) => guard.poll_overdue(cx),
            None => Poll::Pending,
        }
    }
}

// === impl HeadGuard ===

impl HeadGuard {
    fn observe(&mut self, bytes: &[u8]) {
        self.guard.observe(bytes);
        if !self.guard.is_inside_head() {
            self.deadline = None;
        } else if self.deadline.is_none() {
            let deadline = Instant::now() + self.timeout;
            self.deadline = Some(Box::pin(tokio::time::sleep_until(deadline)));
        }
    }

    fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        match &mut self.deadline {
            Some(deadline) => {
                deadline.as_mut().poll(cx).map(|()| io::Error::from(io::ErrorKind::TimedOut))
            }
            None => Poll::Pending,
        }
    }
}
