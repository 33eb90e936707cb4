//! The end of a request's record: its metrics, its account and its log line.

use super::{
    RequestLog,
    records::{self, Exposure, Line},
};
use crate::{
    api::request::ResourceRequest,
    metrics::{RequestSample, Would},
    tap::Phase,
};

/// Writes the log line of a request at a level that is a compile-time constant.
macro_rules! line {
    ($level:ident, $log:expr, $duration:expr) => {{
        let log: &RequestLog = $log;
        let request = log.request().filter(|_| log.client.target == Exposure::Clean);
        tracing::$level!(
            target: records::ACCESS_LOG,
            verb = log.verb.as_str(),
            resource = request.map(|request| tracing::field::display(&request.resource)),
            namespace = request.and_then(|request| records::shown(request.scope.namespace())),
            user_agent = (!log.client.agent.is_empty()).then_some(&*log.client.agent),
            served_by = log.served_by.as_str(),
            detail = log.detail,
            code = log.code.as_u16(),
            bytes = log.bytes,
            duration = ?$duration,
            held = log.held.map(|(_, held)| tracing::field::debug(held)),
            held_by = log.held.map(|(limit, _)| limit.as_str()),
            would = log.would.map(Would::as_str),
            would_detail = log.would_detail,
            "request",
        );
    }};
}

impl Drop for RequestLog {
    fn drop(&mut self) {
        let duration = self.started.elapsed();
        if let Some(toll) = self.toll.take() {
            toll.settle(self.served_by, self.code, self.facts.content);
        }
        self.tell(Phase::Ended, duration);
        if let Some(asker) = &self.asker {
            self.records.insight().record(asker, self.connection, &self.record(duration));
        }
        let (verb, served_by, code) = (self.verb, self.served_by, self.code);
        let request = self.request();
        let target = request.map(|request| (&request.resource, &request.scope));
        let sample = RequestSample { verb, target, served_by, code, duration, bytes: self.bytes };
        self.metrics.request(&sample);
        if request.is_some_and(ResourceRequest::is_unsafe_read) {
            self.metrics.unsafe_read(&sample);
        }
        self.metrics.client_sent(served_by, self.bytes);
        match self.records.line(code, served_by) {
            Line::Shown => line!(info, self, duration),
            Line::Filtered => line!(debug, self, duration),
        }
    }
}
