//! The reasons why a listener refuses a request itself.

label! {
    /// The reason why a listener refused a request before it was parsed.
    EdgeRefusal {
        /// The framing of the request is wrong or ambiguous.
        Framing = "framing",
        /// The `Connection` header names a credential.
        Credential = "credential_in_connection",
        /// The target is neither a path nor a URL, or has an invalid escape.
        Target = "target",
        /// The `Expect` header demands anything but `100-continue`.
        Expectation = "expectation",
        /// CONNECT, which this listener does not serve, or to another server.
        Connect = "connect",
        /// A request without TLS other than CONNECT.
        Plain = "without_tls",
        /// The connection had just been closed to make room for another.
        Closed = "connection_closed",
        /// The limit of concurrent requests was reached.
        TooMany = "too_many_requests",
    }
}
