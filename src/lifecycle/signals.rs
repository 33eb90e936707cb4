//! The signals that ask a process to stop.

use std::io;

/// A listener for stop signals. It misses none after its creation.
#[derive(Debug)]
pub struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

// === impl Signals ===

#[cfg(unix)]
impl Signals {
    /// Starts to listen. It must be called on a runtime.
    pub fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next signal and returns its name.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

#[cfg(not(unix))]
impl Signals {
    /// Starts to listen. It must be called on a runtime.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {})
    }

    /// Waits for the next signal and returns its name.
    pub async fn next(&mut self) -> &'static str {
        match tokio::signal::ctrl_c().await {
            Ok(()) => "Ctrl-C",
            Err(_) => std::future::pending().await,
        }
    }
}
