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

/// Keeps the process running at SIGHUP from now on. Only a process with a configuration file acts on
/// it. It must be called on a runtime.
#[cfg(unix)]
pub fn survive_hangup() -> io::Result<()> {
    // The handler stays when the listener is dropped.
    tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).map(drop)
}

/// Does nothing: this platform has no SIGHUP.
#[cfg(not(unix))]
pub fn survive_hangup() -> io::Result<()> {
    Ok(())
}
