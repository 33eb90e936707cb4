//! Label values of polls that repeat, and of mode `observe`.

label! {
    /// A limit on polls that repeat.
    PollLimit {
        /// The limit on polls that reach the apiserver.
        Upstream = "upstream",
        /// The guard against loops on responses from memory.
        Memory = "memory",
    }
}

label! {
    /// How a poll that was held back came to wait.
    Held {
        /// It was the first, and waited for a token.
        First = "first",
        /// An identical one waited already.
        Joined = "joined",
    }
}

label! {
    /// What would have been done with a request, were the mode `enforce`.
    Would {
        /// Answered from memory.
        Read = "read",
        /// Followed from memory.
        Watch = "watch",
        /// Sent together with identical ones.
        Share = "share",
        /// Held back, and then one of the others.
        Pace = "pace",
        /// Refused with 429.
        Reject = "reject",
        /// Answered from the documents held.
        Discovery = "discovery",
        /// Sent to the apiserver.
        Forward = "forward",
    }
}

label! {
    /// What comparing an answer with memory came to.
    Shadow {
        /// Memory would have said the same.
        Equal = "equal",
        /// Memory would have said something else.
        Different = "different",
        /// Memory was never, or is no longer, where the answer is.
        Unknown = "unknown",
    }
}
