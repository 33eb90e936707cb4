//! The closed sets of label values. No label contains a namespace, a name or a user.

/// Declares an enum whose variants are the values of one label.
macro_rules! label {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $value:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$variant_doc])* $variant),+ }

        impl $name {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Returns the label's value.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $value),+ }
            }
        }
    };
}

mod causes;
mod edge;
mod polls;

pub use causes::UpstreamCause;
pub use edge::EdgeRefusal;
pub use polls::{Held, PollLimit, Shadow, Would};

label! {
    /// The source of a response.
    ServedBy {
        /// A replica in memory.
        Cache = "cache",
        /// The response to an identical request that was already in flight.
        Coalesced = "coalesced",
        /// The apiserver.
        Upstream = "upstream",
        /// Listless itself: an error, or a refusal.
        Proxy = "proxy",
        /// None: the client closed the request before its response.
        ClientClosed = "client_closed",
    }
}

label! {
    /// The expected duration of a request.
    Lane {
        /// A request that ends by itself.
        Short = "short",
        /// A watch, a followed log, or an upgraded connection.
        Long = "long",
    }
}

label! {
    /// The transport of a watch.
    Transport {
        /// A streaming response.
        Http = "http",
        /// WebSocket messages.
        WebSocket = "websocket",
    }
}

label! {
    /// The kind of a watch event.
    WatchEventType {
        /// An object that exists at the start, was created, or entered the selection.
        Added = "added",
        /// An object that changed.
        Modified = "modified",
        /// An object that was deleted or left the selection.
        Deleted = "deleted",
        /// A version only.
        Bookmark = "bookmark",
    }
}

label! {
    /// The reason why a watch ended.
    WatchEnd {
        /// Its timeout passed.
        Timeout = "timeout",
        /// Its client closed it.
        Client = "client",
        /// Its client read too slowly.
        Slow = "slow",
        /// Its replica ended or relisted.
        Replica = "replica",
        /// Its replica had no proof of freshness for too long.
        Unproven = "unproven",
        /// The caller lost its permission.
        Forbidden = "forbidden",
        /// Listless shuts down.
        Shutdown = "shutdown",
    }
}

label! {
    /// The originator of an upstream request.
    Origin {
        /// A client's request, with the client's credentials.
        Client = "client",
        /// A replica's list or watch, with Listless's own identity.
        Replica = "replica",
        /// Listless's own access review for a caller.
        Review = "review",
        /// Listless's own discovery request.
        Discovery = "discovery",
    }
}

label! {
    /// The result of an access review.
    Review {
        /// The caller is allowed.
        Allowed = "allowed",
        /// The caller is not allowed, or not authenticated.
        Denied = "denied",
        /// The rules of Listless's own user in a namespace.
        Rules = "rules",
        /// There was no response, or no free place to send it.
        Failed = "failed",
    }
}

label! {
    /// The source of a discovery or OpenAPI document.
    DocumentResult {
        /// Memory, without revalidation.
        Memory = "memory",
        /// Memory or the client's own copy, after revalidation with the apiserver.
        Revalidated = "revalidated",
        /// The apiserver; cached if possible.
        Fetched = "fetched",
        /// The apiserver; not cached, because it is an error or a redirection.
        NotKept = "not_kept",
    }
}

label! {
    /// The result of a CONNECT request.
    Connect {
        /// It was connected to Listless's apiserver.
        Opened = "opened",
        /// Its target was another host.
        Refused = "refused",
    }
}

label! {
    /// The protocol of a connection.
    Protocol {
        /// HTTP/1.1.
        Http1 = "http1",
        /// HTTP/2.
        Http2 = "http2",
    }
}

label! {
    /// The outcome of an attempt.
    Outcome {
        /// Success.
        Success = "success",
        /// Failure.
        Failure = "failure",
    }
}

label! {
    /// The reason why the apiserver did not answer.
    UpstreamFault {
        /// The connection failed.
        Connect = "connect",
        /// The connection timed out.
        ConnectTimeout = "connect_timeout",
        /// The connection broke before a response.
        Broken = "broken",
        /// Listless's own credentials are not available.
        Credentials = "credentials",
        /// The limit of concurrent requests was reached.
        Saturated = "saturated",
    }
}

label! {
    /// The result of a wait for a replica's version.
    Wait {
        /// The replica reached it.
        Reached = "reached",
        /// The wait timed out, or the replica failed.
        GaveUp = "gave_up",
    }
}

label! {
    /// The state of a replica.
    ReplicaState {
        /// Its first list is not complete.
        Starting = "starting",
        /// It has a list and follows it.
        Synced = "synced",
        /// Its first list failed and will be retried.
        Failing = "failing",
    }
}

label! {
    /// The position of a replica's list or watch among all.
    Round {
        /// Its first one.
        First = "first",
        /// A replacement of a failed or ended one.
        Again = "again",
    }
}

label! {
    /// The kind of an event for a replica.
    Event {
        /// A change of an object.
        Change = "change",
        /// A newer version only.
        Bookmark = "bookmark",
    }
}

label! {
    /// The reason why a replica ended.
    ReplicaEnd {
        /// The apiserver refused its list or watch.
        Refused = "refused",
        /// It did not fit into memory.
        Memory = "memory",
        /// It was not read.
        Idle = "idle",
        /// A wider replica replaced it.
        Widened = "widened",
    }
}

label! {
    /// The reason why a replica's watch ended.
    ReplicaWatchEnd {
        /// Its timeout passed.
        Timeout = "timeout",
        /// The apiserver closed it early, for example at its shutdown.
        Closed = "closed",
        /// Readers needed a bookmark early.
        Lagging = "lagging",
        /// The definition of its resource changed.
        Redefined = "redefined",
        /// The machine was suspended.
        Suspended = "suspended",
        /// A consistency check found that the replica was wrong.
        Inconsistent = "inconsistent",
        /// Its version was too old (410).
        Expired = "expired",
        /// The apiserver refused it.
        Refused = "refused",
        /// The apiserver answered another error.
        Status = "status",
        /// There was no connection or no response.
        Unanswered = "unanswered",
        /// The connection broke.
        Broken = "broken",
        /// Nothing arrived in time.
        Silent = "silent",
        /// Its versions went back.
        Backwards = "backwards",
        /// Its data could not be parsed.
        Malformed = "malformed",
    }
}

label! {
    /// The result of a replica's consistency check.
    ReplicaCheck {
        /// The replica and the apiserver's list had the same objects at the same versions.
        Equal = "equal",
        /// They differed.
        Different = "different",
        /// A custom object had other bytes at the same version.
        Reshaped = "reshaped",
        /// The apiserver had no list at exactly this version.
        Unanswered = "unanswered",
    }
}

label! {
    /// The reason why a sidecar's earlier worker ended.
    WorkerEnd {
        /// It exited with a code.
        Exit = "exit",
        /// It was killed, for example by a kernel that is short of memory.
        Killed = "killed",
        /// Another signal ended it, for example after a crash.
        Signal = "signal",
        /// It could not be started.
        NotStarted = "not_started",
        /// Its safe mode was over.
        SafeModeOver = "safe_mode_over",
    }
}

label! {
    /// A certificate of Listless's own.
    Certificate {
        /// The authority that clients trust.
        Authority = "authority",
        /// The listener's certificate.
        Serving = "serving",
    }
}

label! {
    /// The outcome of an audit line.
    AuditResult {
        /// It was written.
        Written = "written",
        /// It was dropped, because the queue was full.
        Dropped = "dropped",
        /// It could not be written.
        Failed = "failed",
    }
}

label! {
    /// The outcome of a webhook review.
    Injection {
        /// The pod got a sidecar, or a new container was redirected to it.
        Injected = "injected",
        /// The pod was skipped.
        Skipped = "skipped",
        /// The review was invalid.
        Error = "error",
    }
}

label! {
    /// A limit that bounds memory or work.
    Limit {
        /// Client connections open at once.
        Connections = "connections",
        /// Connections for probes, scrapes and operators.
        AdminConnections = "admin_connections",
        /// Requests of clients in flight at once.
        ClientRequests = "client_requests",
        /// Requests in flight to the apiserver.
        UpstreamRequests = "upstream_requests",
        /// Watches answered from memory.
        Watches = "watches",
        /// Queued lines for the audit file.
        AuditQueue = "audit_queue",
        /// Bytes of cached discovery and OpenAPI documents.
        DiscoveryBytes = "discovery_bytes",
        /// Bytes of responses kept for repetition.
        KeptResponses = "kept_responses",
        /// Bytes of compressed and printed responses that clients have not read.
        UnreadResponses = "unread_responses",
        /// Bytes of responses that identical reads share.
        SharedResponses = "shared_responses",
        /// Resources with metric labels of their own.
        MetricResources = "metric_resources",
        /// Events that the injector sends or queues.
        InjectorEvents = "injector_events",
        /// Polls whose repetitions are counted.
        PollKeys = "poll_keys",
        /// Queries without a replica whose unsafe reads are counted.
        DemandedQueries = "demanded_queries",
        /// Kept snapshots whose next pages may be requested.
        OutstandingPages = "outstanding_pages",
        /// Polls delayed at once.
        PollsHeld = "polls_held",
        /// Listless's own requests to the apiserver in a period.
        OwnRequests = "own_requests",
        /// Concurrent comparisons with memory, or the size of one.
        ShadowChecks = "shadow_checks",
        /// Event streams on the admin address.
        EventStreams = "event_streams",
        /// Requests for an event stream that reads too slowly.
        TappedRequests = "tapped_requests",
        /// Kinds of requests in the report.
        Accounts = "accounts",
        /// The size of an event of a forwarded watch that is also parsed.
        WatchEvents = "watch_events",
        /// The marks of a session on single objects of a resource.
        SessionMarks = "session_marks",
    }
}

/// Joins every value of a label, for the documentation.
pub(super) fn join(values: &[&'static str]) -> String {
    values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ")
}
