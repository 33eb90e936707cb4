//! State of the apiserver: the rules by which exchanges begin and end an outage; pure.
//!
//! A response ends an outage of the connection, whoever it is for. A refusal of Listless's own
//! credentials ends only when a request with these credentials succeeds.

use http::StatusCode;
use tokio::time::Instant;

use crate::metrics::UpstreamCause;

/// Sender and purpose of an exchange with the apiserver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeKind {
    /// The caller's credentials are used.
    Caller,
    /// Listless's own credentials are used.
    Own,
    /// Listless's own credentials are used, to learn the permissions of a caller.
    OwnReview,
    /// Listless's own credentials are used, only to learn the state.
    Probe,
}

/// An outage that lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// The latest cause.
    pub cause: UpstreamCause,
    /// Its beginning, whatever the cause was then.
    pub since: Instant,
    /// Exchanges that failed since then.
    pub failures: u64,
}

/// A change that people must learn of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// An outage began, or continues with another cause.
    Failing(Outage),
    /// The outage ended.
    Recovered(Outage),
    /// Nothing is certain; a probe can tell.
    Doubt,
}

/// Totals since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutageSums {
    /// Outages by the cause that they began or continued with.
    pub failing: [u64; UpstreamCause::ALL.len()],
    /// Outages that ended.
    pub recovered: u64,
    /// Cause of the latest outage.
    pub cause: Option<UpstreamCause>,
}

/// The state, and its totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealthState {
    is_known: bool,
    outage: Option<Outage>,
    sums: OutageSums,
}

// === impl HealthState ===

impl HealthState {
    /// Reports whether any exchange has ended yet.
    pub fn is_known(&self) -> bool {
        self.is_known
    }

    /// Returns the outage that lasts now.
    pub fn outage(&self) -> Option<Outage> {
        self.outage
    }

    /// Returns the totals.
    pub fn sums(&self) -> OutageSums {
        self.sums
    }

    /// Takes in a response.
    pub fn answered(
        &mut self,
        kind: ExchangeKind,
        status: StatusCode,
        now: Instant,
    ) -> Option<Change> {
        self.is_known = true;
        let is_own = kind != ExchangeKind::Caller;
        match status {
            // The server behind an APIService or a proxied Service refuses credentials of its own.
            StatusCode::UNAUTHORIZED if kind == ExchangeKind::Own && self.outage.is_none() => {
                return Some(Change::Doubt);
            }
            StatusCode::UNAUTHORIZED if is_own => {
                return self.fail(UpstreamCause::Unauthorized, now);
            }
            StatusCode::FORBIDDEN if kind == ExchangeKind::Probe => {
                return self.fail(UpstreamCause::Forbidden, now);
            }
            _ => {}
        }
        let ends = |outage: &Outage| match outage.cause {
            // Much is forbidden to a user who is well served.
            UpstreamCause::Forbidden => is_own && status.is_success(),
            cause if cause.is_refusal() => is_own && !status.is_server_error(),
            _ => true,
        };
        if let Some(outage) = self.outage.take_if(|outage| ends(outage)) {
            self.sums.recovered += 1;
            return Some(Change::Recovered(outage));
        }
        let doubt = status == StatusCode::FORBIDDEN && kind == ExchangeKind::OwnReview;
        doubt.then_some(Change::Doubt)
    }

    /// Takes in a failure: no response came.
    pub fn failed(
        &mut self,
        kind: ExchangeKind,
        cause: UpstreamCause,
        now: Instant,
    ) -> Option<Change> {
        self.is_known = true;
        // One broken connection is no outage: the next request may well succeed on another one.
        let certain = !matches!(cause, UpstreamCause::Broken | UpstreamCause::ResponseTimeout);
        if certain || kind == ExchangeKind::Probe {
            return self.fail(cause, now);
        }
        match &mut self.outage {
            Some(outage) => {
                outage.failures += 1;
                None
            }
            None => Some(Change::Doubt),
        }
    }

    fn fail(&mut self, cause: UpstreamCause, now: Instant) -> Option<Change> {
        let before = self.outage.map(|outage| outage.cause);
        let outage = self.outage.get_or_insert(Outage { cause, since: now, failures: 0 });
        outage.failures += 1;
        outage.cause = cause;
        if before == Some(cause) {
            return None;
        }
        self.sums.failing[cause as usize] += 1;
        self.sums.cause = Some(cause);
        Some(Change::Failing(*outage))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{ExchangeKind::*, *};

    const OK: StatusCode = StatusCode::OK;
    const UNAUTHORIZED: StatusCode = StatusCode::UNAUTHORIZED;
    const FORBIDDEN: StatusCode = StatusCode::FORBIDDEN;

    fn failing(state: &HealthState) -> Option<UpstreamCause> {
        state.outage().map(|outage| outage.cause)
    }

    #[test]
    fn an_outage_is_told_when_it_begins_when_its_cause_changes_and_when_it_ends() {
        let (mut state, start) = (HealthState::default(), Instant::now());
        assert!(!state.is_known());
        let at = |seconds| start + Duration::from_secs(seconds);
        let outage = |cause, failures| Outage { cause, since: start, failures };
        let refused = UpstreamCause::Refused;
        let told = state.failed(Caller, refused, start);
        assert_eq!(told, Some(Change::Failing(outage(refused, 1))));
        assert_eq!(state.failed(Own, refused, at(1)), None);
        let timeout = UpstreamCause::ConnectTimeout;
        let told = state.failed(Probe, timeout, at(2));
        assert_eq!(told, Some(Change::Failing(outage(timeout, 3))));
        assert_eq!(state.failed(Caller, UpstreamCause::Broken, at(3)), None);
        assert_eq!(state.outage(), Some(outage(timeout, 4)));
        let told = state.answered(Caller, UNAUTHORIZED, at(4));
        assert_eq!(told, Some(Change::Recovered(outage(timeout, 4))));
        assert_eq!(state.answered(Caller, OK, at(5)), None);
        let sums = state.sums();
        assert_eq!((sums.failing.iter().sum::<u64>(), sums.recovered), (2, 1));
        assert_eq!((sums.cause, state.is_known()), (Some(timeout), true));
    }

    #[test]
    fn one_broken_connection_is_a_doubt_that_only_a_probe_makes_certain() {
        let (mut state, now) = (HealthState::default(), Instant::now());
        for cause in [UpstreamCause::Broken, UpstreamCause::ResponseTimeout] {
            assert_eq!(state.failed(Caller, cause, now), Some(Change::Doubt));
            assert_eq!(failing(&state), None);
            assert!(matches!(state.failed(Probe, cause, now), Some(Change::Failing(_))));
            assert_eq!(failing(&state), Some(cause));
            state.answered(Probe, OK, now);
        }
    }

    #[test]
    fn only_our_own_refused_credentials_are_an_outage_and_only_their_success_ends_it() {
        let (mut state, now) = (HealthState::default(), Instant::now());
        assert_eq!(state.answered(Caller, UNAUTHORIZED, now), None);
        assert_eq!(state.answered(Own, FORBIDDEN, now), None);
        assert_eq!(state.answered(OwnReview, FORBIDDEN, now), Some(Change::Doubt));
        assert_eq!(failing(&state), None);
        assert_eq!(state.answered(Own, UNAUTHORIZED, now), Some(Change::Doubt));
        assert!(matches!(state.answered(Probe, UNAUTHORIZED, now), Some(Change::Failing(_))));
        for status in [OK, FORBIDDEN] {
            assert_eq!(state.answered(Caller, status, now), None);
        }
        assert_eq!(state.answered(Own, StatusCode::SERVICE_UNAVAILABLE, now), None);
        assert_eq!(failing(&state), Some(UpstreamCause::Unauthorized));
        assert!(matches!(state.answered(Own, FORBIDDEN, now), Some(Change::Recovered(_))));
    }

    #[test]
    fn what_every_user_may_do_must_not_be_forbidden() {
        let (mut state, now) = (HealthState::default(), Instant::now());
        assert!(matches!(state.answered(Probe, FORBIDDEN, now), Some(Change::Failing(_))));
        assert_eq!(failing(&state), Some(UpstreamCause::Forbidden));
        assert_eq!(state.answered(Own, FORBIDDEN, now), None);
        assert_eq!(state.answered(OwnReview, FORBIDDEN, now), Some(Change::Doubt));
        assert!(matches!(state.answered(Own, OK, now), Some(Change::Recovered(_))));
    }
}
