//! The closed sets of label values; a label never carries a namespace, a name or a user.

/// Declares an enum whose variants are the values of one label.
macro_rules! label {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $value:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$variant_doc])* $variant),+ }

        impl $name {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The label's value.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $value),+ }
            }
        }
    };
}

mod causes;
mod polls;

pub use causes::UpstreamCause;
pub use polls::{Held, PollLimit, Shadow, Would};

label! {
    /// What answered a request.
    ServedBy {
        /// A replica held here.
        Cache = "cache",
        /// The upstream answer to an identical request that was already on its way.
        Coalesced = "coalesced",
        /// The apiserver.
        Upstream = "upstream",
        /// Listless itself: an error, or a refusal.
        Proxy = "proxy",
        /// Nothing: the client hung up before its response, whatever became of the request.
        ClientClosed = "client_closed",
    }
}

label! {
    /// How long a request is expected to stay open.
    Lane {
        /// It ends by itself.
        Short = "short",
        /// A watch, a log being followed, an upgraded connection.
        Long = "long",
    }
}

label! {
    /// How a watch reaches its client.
    Transport {
        /// As a streaming answer.
        Http = "http",
        /// As messages of a WebSocket.
        WebSocket = "websocket",
    }
}

label! {
    /// What a watch told.
    Told {
        /// An object that is there at the start, came to be or came into the selection.
        Added = "added",
        /// An object that changed.
        Modified = "modified",
        /// An object that is gone or left the selection.
        Deleted = "deleted",
        /// A version and nothing else.
        Bookmark = "bookmark",
    }
}

label! {
    /// Why a watch ended.
    WatchEnd {
        /// Its time was over.
        Timeout = "timeout",
        /// Its client went away.
        Client = "client",
        /// Its client read more slowly than events came.
        Slow = "slow",
        /// Its replica ended or listed anew.
        Replica = "replica",
        /// Its replica was without news for too long.
        Unproven = "unproven",
        /// The caller may no longer watch.
        Forbidden = "forbidden",
        /// Listless is about to end.
        Shutdown = "shutdown",
    }
}

label! {
    /// On whose behalf a request went upstream.
    Origin {
        /// A client's request, with the client's credentials.
        Client = "client",
        /// A replica's list or watch, with the own identity.
        Replica = "replica",
        /// A question of Listless's own: may this caller have that?
        Review = "review",
        /// A question of Listless's own: what is served, by whom, and has that changed?
        Discovery = "discovery",
    }
}

label! {
    /// What an access review came to.
    Review {
        /// The caller may.
        Allowed = "allowed",
        /// The caller may not, or is nobody.
        Denied = "denied",
        /// The rules of Listless's own user in a namespace.
        Rules = "rules",
        /// There was no answer, or no place to ask for one.
        Failed = "failed",
    }
}

label! {
    /// How a document of discovery or OpenAPI was given.
    DocumentResult {
        /// From memory, without asking.
        Memory = "memory",
        /// From memory, after the apiserver confirmed it, or the client's own copy.
        Revalidated = "revalidated",
        /// By the apiserver, and kept if it may be given again.
        Fetched = "fetched",
        /// By the apiserver, and not kept: an error, or a redirection.
        NotKept = "not_kept",
    }
}

label! {
    /// What became of a CONNECT.
    Connect {
        /// It led to the apiserver, as Listless stands for it.
        Opened = "opened",
        /// It would have led elsewhere.
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
    /// How an attempt ended.
    Outcome {
        /// As wished.
        Success = "success",
        /// Not as wished.
        Failure = "failure",
    }
}

label! {
    /// Why no answer came from the apiserver.
    UpstreamFault {
        /// No connection could be made.
        Connect = "connect",
        /// No connection was made in time.
        ConnectTimeout = "connect_timeout",
        /// The connection broke before an answer came.
        Broken = "broken",
        /// The own credentials could not be obtained.
        Credentials = "credentials",
        /// Too much was in flight already.
        Saturated = "saturated",
    }
}

label! {
    /// How a wait for a replica to reach a version ended.
    Wait {
        /// The replica reached it.
        Reached = "reached",
        /// Time ran out, or the replica failed.
        GaveUp = "gave_up",
    }
}

label! {
    /// The state of a replica.
    ReplicaState {
        /// It has not listed yet.
        Starting = "starting",
        /// It holds a list and follows it.
        Synced = "synced",
        /// It never listed, and waits before it tries again.
        Failing = "failing",
    }
}

label! {
    /// Whether a replica's list or watch was its first.
    Round {
        /// It had none before.
        First = "first",
        /// It took the place of one that had failed or ended.
        Again = "again",
    }
}

label! {
    /// What a watch brought.
    Event {
        /// A change of an object.
        Change = "change",
        /// Only a newer version.
        Bookmark = "bookmark",
    }
}

label! {
    /// Why a replica ended.
    ReplicaEnd {
        /// The apiserver does not let us list or watch it.
        Refused = "refused",
        /// It did not fit into memory.
        Memory = "memory",
        /// Nobody read it.
        Idle = "idle",
        /// A wider one took over.
        Widened = "widened",
    }
}

label! {
    /// Why a replica's watch ended.
    ReplicaWatchEnd {
        /// The time it was asked for was over.
        Timeout = "timeout",
        /// The apiserver ended it before its time, as when it shuts down.
        Closed = "closed",
        /// Readers needed a bookmark sooner than it would have come.
        Lagging = "lagging",
        /// The definition of its resource changed.
        Redefined = "redefined",
        /// Its version was too old (410).
        Expired = "expired",
        /// The apiserver does not let us.
        Refused = "refused",
        /// The apiserver answered another error.
        Status = "status",
        /// No connection, or no answer.
        Unanswered = "unanswered",
        /// The connection broke.
        Broken = "broken",
        /// Nothing came in time.
        Silent = "silent",
        /// What came went back in versions.
        Backwards = "backwards",
        /// What came could not be read.
        Malformed = "malformed",
    }
}

label! {
    /// Why a sidecar's worker ended that another took the place of.
    WorkerEnd {
        /// By itself, with an exit code.
        Exit = "exit",
        /// Killed outright, as by a kernel that is short of memory.
        Killed = "killed",
        /// By another signal, as after a crash.
        Signal = "signal",
        /// It could not be started.
        NotStarted = "not_started",
        /// It was in safe mode, which was over.
        SafeModeOver = "safe_mode_over",
    }
}

label! {
    /// A certificate of Listless's own.
    Certificate {
        /// The authority clients trust.
        Authority = "authority",
        /// The one the listener shows.
        Serving = "serving",
    }
}

label! {
    /// What became of a line of the audit file.
    AuditResult {
        /// It is in the file.
        Written = "written",
        /// Too many lines were waiting.
        Dropped = "dropped",
        /// The file could not be written.
        Failed = "failed",
    }
}

label! {
    /// What the webhook did with a pod.
    Injection {
        /// It got a sidecar, or a new container of it was led there.
        Injected = "injected",
        /// It was left as it is.
        Skipped = "skipped",
        /// The question was none.
        Error = "error",
    }
}

label! {
    /// A bound that keeps memory or work finite.
    Limit {
        /// Client connections open at once.
        Connections = "connections",
        /// Connections for probes, scrapes and operators.
        AdminConnections = "admin_connections",
        /// Requests in flight to the apiserver.
        UpstreamRequests = "upstream_requests",
        /// Watches answered from memory.
        Watches = "watches",
        /// Lines that wait for the audit file.
        AuditQueue = "audit_queue",
        /// Bytes of discovery and OpenAPI documents held.
        DiscoveryBytes = "discovery_bytes",
        /// Resources with metric labels of their own.
        MetricResources = "metric_resources",
        /// Events that the injector sends, or has waiting.
        InjectorEvents = "injector_events",
        /// Polls whose repetitions are counted.
        PollKeys = "poll_keys",
        /// Queries without a replica whose unsafe reads are counted.
        DemandedQueries = "demanded_queries",
        /// Polls held back at once.
        PollsHeld = "polls_held",
        /// Requests of Listless's own to the apiserver in a while.
        OwnRequests = "own_requests",
        /// Answers compared with memory at once, or the size of one.
        ShadowChecks = "shadow_checks",
        /// Streams of events on the admin address.
        EventStreams = "event_streams",
        /// Requests told to a stream of events that does not read them fast enough.
        TappedRequests = "tapped_requests",
        /// Kinds of requests that are told apart in the report.
        Accounts = "accounts",
        /// The size of an event of a watch that is passed on, for it to be read along.
        WatchEvents = "watch_events",
        /// What one session knows of single objects of a resource.
        SessionMarks = "session_marks",
    }
}

/// Every value of a label, for the documentation.
pub(super) fn join(values: &[&'static str]) -> String {
    values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ")
}
