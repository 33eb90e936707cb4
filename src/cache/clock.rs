//! The apiserver's wall clock, for times that it prints relative to now.
//!
//! Listless' own clock may differ. Each response carries the apiserver's date, cut to a second. It
//! bounds the difference to about a second, and several dates bound it more closely. The estimate
//! is the smallest difference that agrees with all of them. A date that contradicts the bounds
//! means that a clock was set: it starts new ones.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use http::{HeaderMap, header};
use tokio::time::Instant;

use super::table::{Moment, Window};

/// An estimate of the apiserver's clock; cheap to clone.
#[derive(Clone, Debug)]
pub struct Clock(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    base: Base,
    bounds: Mutex<Option<Bounds>>,
}

/// Listless' own clock.
#[derive(Clone, Copy, Debug)]
enum Base {
    /// The system's.
    System,
    /// A clock that showed this time at this instant.
    Started(SystemTime, Instant),
}

/// The differences between the clocks that agree with all dates, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bounds {
    low: i64,
    high: i64,
}

/// The time that a response may have been made before its arrival, and the tolerance for clocks.
const TOLERANCE: Duration = Duration::from_secs(2);

/// The longest delay of an event on its way from the apiserver.
const EVENT_DELAY_MAX: Duration = Duration::from_secs(10);

const SECOND: i64 = 1_000_000_000;

// === impl Clock ===

impl Clock {
    /// Creates an estimate from the system's clock.
    pub fn system() -> Self {
        Self::of(Base::System)
    }

    /// Creates an estimate from a clock that showed a time at an instant.
    pub fn started(time: SystemTime, at: Instant) -> Self {
        Self::of(Base::Started(time, at))
    }

    fn of(base: Base) -> Self {
        Self(Arc::new(Inner { base, bounds: Mutex::new(None) }))
    }

    /// Returns the apiserver's time.
    pub fn now(&self) -> Moment {
        self.own().plus(self.difference())
    }

    fn difference(&self) -> i64 {
        let bounds = self.0.bounds.lock().unwrap_or_else(PoisonError::into_inner);
        bounds.map_or(0, Bounds::nearest)
    }

    /// Returns the time of Listless' own clock, for [`Clock::learn`].
    pub(super) fn own(&self) -> Moment {
        let time = match self.0.base {
            Base::System => SystemTime::now(),
            Base::Started(time, at) => time + at.elapsed(),
        };
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Moment(nanoseconds(since))
    }

    /// Learns from the date of a response to a request that was sent at a time of the own clock.
    pub(super) fn learn(&self, headers: &HeaderMap, sent: Moment) {
        let date = headers.get(header::DATE).and_then(|date| date.to_str().ok());
        let Some(date) = date.and_then(parse_date) else { return };
        let received = self.own();
        let seen = Bounds { low: date.since(received), high: date.plus(SECOND).since(sent) };
        // The own clock was set back meanwhile.
        if seen.low > seen.high {
            return;
        }
        let mut bounds = self.0.bounds.lock().unwrap_or_else(PoisonError::into_inner);
        *bounds = Some(bounds.and_then(|known| known.and(seen)).unwrap_or(seen));
    }

    /// Returns the window of a part of a response that arrives now. Its request was sent at a time
    /// of the own clock.
    pub(super) fn since(&self, sent: Moment) -> Window {
        let sent = sent.plus(self.difference());
        Window { from: sent.plus(-nanoseconds(TOLERANCE)), to: self.latest() }
    }

    /// Returns the window of an event that arrives now.
    pub(super) fn of_event(&self) -> Window {
        Window { from: self.now().plus(-nanoseconds(EVENT_DELAY_MAX)), to: self.latest() }
    }

    fn latest(&self) -> Moment {
        self.now().plus(nanoseconds(TOLERANCE))
    }
}

// === impl Bounds ===

impl Bounds {
    /// Returns the bounds that both give, unless they contradict each other.
    fn and(self, other: Self) -> Option<Self> {
        let both = Self { low: self.low.max(other.low), high: self.high.min(other.high) };
        (both.low <= both.high).then_some(both)
    }

    /// Returns the difference within the bounds that is nearest to none.
    fn nearest(self) -> i64 {
        0.clamp(self.low, self.high)
    }
}

fn nanoseconds(duration: Duration) -> i64 {
    duration.as_nanos().try_into().unwrap_or(i64::MAX)
}

fn parse_date(text: &str) -> Option<Moment> {
    let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    i64::try_from(date.as_nanosecond()).ok().map(Moment)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::testing::pass;

    fn date(second: u32) -> HeaderMap {
        let date = format!("Thu, 01 Jan 2026 00:00:{second:02} GMT");
        let value = HeaderValue::from_str(&date).expect("a header value");
        [(header::DATE, value)].into_iter().collect()
    }

    fn start() -> Moment {
        Moment::parse("2026-01-01T00:00:00Z").expect("a timestamp")
    }

    fn clock() -> Clock {
        let nanoseconds = u64::try_from(start().0).expect("after 1970");
        let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(nanoseconds);
        Clock::started(time, Instant::now())
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_was_set_back_during_a_request_teaches_nothing() {
        let clock = clock();
        clock.learn(&date(0), clock.own().plus(5 * SECOND));
        assert_eq!(clock.now().since(start()), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_may_be_right_is_believed() {
        let clock = clock();
        let sent = clock.own();
        pass(Duration::from_millis(300)).await;
        clock.learn(&date(0), sent);
        assert_eq!(clock.now().since(start()), SECOND * 3 / 10);
        let window = clock.since(sent);
        assert_eq!(window.from.since(start()), -2 * SECOND);
        assert_eq!(window.to.since(start()), SECOND * 23 / 10);
    }

    #[tokio::test(start_paused = true)]
    async fn dates_bound_the_difference_of_the_clocks() {
        let clock = clock();
        // The other clock is 2.5 s ahead: its seconds change when this one shows halves.
        clock.learn(&date(2), clock.own());
        assert_eq!(clock.now().since(start()), 2 * SECOND);
        pass(Duration::from_millis(500)).await;
        clock.learn(&date(3), clock.own());
        assert_eq!(clock.now().since(start()), 3 * SECOND);
        pass(Duration::from_millis(499)).await;
        clock.learn(&date(3), clock.own());
        assert_eq!(clock.now().since(start()), SECOND * 3499 / 1000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_was_set_is_followed() {
        let clock = clock();
        clock.learn(&date(0), clock.own());
        clock.learn(&date(30), clock.own());
        assert_eq!(clock.now().since(start()), 30 * SECOND);
        clock.learn(&HeaderMap::new(), clock.own());
        assert_eq!(clock.now().since(start()), 30 * SECOND);
    }
}
