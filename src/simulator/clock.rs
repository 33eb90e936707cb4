//! The simulated wall clock.

use std::time::SystemTime;

use http::HeaderValue;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::{Core, Simulator};

// === impl Simulator ===

impl Simulator {
    /// Returns the time of the simulated wall clock.
    pub fn wall_clock(&self) -> SystemTime {
        self.0.wall_clock(Instant::now()).into()
    }

    /// Returns the `Date` of a response.
    pub(super) fn date(&self) -> HeaderValue {
        let now = self.0.wall_clock(Instant::now()).strftime("%a, %d %b %Y %H:%M:%S GMT");
        HeaderValue::from_str(&now.to_string()).unwrap_or(HeaderValue::from_static(""))
    }
}

// === impl Core ===

impl Core {
    /// Returns the simulated wall clock.
    pub(super) fn wall_clock(&self, at: Instant) -> Timestamp {
        let elapsed = SignedDuration::try_from(at.saturating_duration_since(self.started));
        let now = self.settings.epoch.saturating_add(elapsed.unwrap_or_default());
        now.unwrap_or(self.settings.epoch)
    }

    /// Returns the simulated wall clock in the API's format.
    pub(super) fn timestamp(&self, at: Instant) -> String {
        self.wall_clock(at).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }
}
