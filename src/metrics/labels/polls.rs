//! Label values of repeated polls, and of mode `observe`.

label! {
    /// A limit on repeated polls.
    PollLimit {
        /// The limit on polls that reach the apiserver.
        Upstream = "upstream",
        /// The limit on loops on responses from memory.
        Memory = "memory",
    }
}

label! {
    /// The position of a delayed poll.
    Held {
        /// The first one, which waits for a token.
        First = "first",
        /// A later one, identical to a waiting one.
        Joined = "joined",
    }
}

label! {
    /// The effect that mode `enforce` would have had on a request.
    Would {
        /// A response from memory.
        Read = "read",
        /// A watch from memory.
        Watch = "watch",
        /// A response shared with identical requests.
        Share = "share",
        /// A delay, followed by one of the others.
        Pace = "pace",
        /// A refusal with 429.
        Reject = "reject",
        /// A cached document.
        Discovery = "discovery",
        /// A request to the apiserver.
        Forward = "forward",
    }
}

label! {
    /// The result of a comparison with memory.
    Shadow {
        /// Memory had the same response.
        Equal = "equal",
        /// Memory had another response.
        Different = "different",
        /// Memory never had, or no longer has, the response's version.
        Unknown = "unknown",
    }
}
