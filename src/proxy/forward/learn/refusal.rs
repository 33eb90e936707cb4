//! The facts that an error response shows, and the reads that it makes useless (S-CLI-03).

use http::StatusCode;
use tokio::time::Instant;

use super::{SessionExchange, Subject};
use crate::{
    api::{ObjectKey, Verb},
    proxy::session::{Expectation, Session},
};

// === impl SessionExchange ===

impl SessionExchange {
    /// Notes an error response whose body teaches nothing.
    pub(super) fn refused(self, code: StatusCode) {
        match self.subject {
            // One object of a collection may be refused after others were deleted (S-WRITE-27).
            Subject::Write(verb) if code.is_server_error() || verb == Verb::DeleteCollection => {
                self.lost();
            }
            Subject::Write(_) => {}
            Subject::Read { consistent, .. } | Subject::Watch { consistent, .. } => {
                // Without a version, 504 is about the time that the request took.
                if code == StatusCode::GONE || (code == StatusCode::GATEWAY_TIMEOUT && !consistent)
                {
                    self.expired(&mut self.session.lock());
                }
                if code == StatusCode::NOT_FOUND {
                    self.went_upstream(&mut self.session.lock());
                }
                if let (StatusCode::NOT_FOUND, Subject::Read { .. }, Some(key)) =
                    (code, self.subject, self.key.clone())
                {
                    let (mut session, now) = (self.session.lock(), Instant::now());
                    let gone = Expectation::Gone { uid: None, version: None };
                    if consistent {
                        session.observe(&self.resource, key, gone, (self.sent_at, now));
                    } else {
                        session.raise(&self.resource, key, gone, now);
                    }
                }
            }
        }
    }

    pub(super) fn expired(&self, session: &mut Session) {
        if let Some(query) = &self.query {
            session.expired(query, self.key.as_ref().map(ObjectKey::name));
        }
    }

    /// Notes that the apiserver answered, if the request was a read without a version.
    pub(super) fn went_upstream(&self, session: &mut Session) {
        if let (
            Some(query),
            Subject::Read { consistent: true, .. } | Subject::Watch { consistent: true, .. },
        ) = (&self.query, self.subject)
        {
            session.went_upstream(query, self.key.as_ref().map(ObjectKey::name));
        }
    }
}
