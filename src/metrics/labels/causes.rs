//! Causes of an outage of the apiserver, as labels and in words that name no address and no secret.

label! {
    /// Cause of an outage of the apiserver.
    UpstreamCause {
        /// The name of the apiserver has no address.
        Name = "name_not_resolved",
        /// Nothing listens at the address.
        Refused = "connection_refused",
        /// No network leads to the address.
        NoRoute = "no_route",
        /// Connecting took too long.
        ConnectTimeout = "connect_timeout",
        /// The HTTP proxy opened no tunnel.
        Proxy = "proxy_refused",
        /// The certificate is signed by an authority that is not trusted.
        UntrustedIssuer = "tls_untrusted_issuer",
        /// The certificate is for another name.
        WrongName = "tls_wrong_name",
        /// The certificate is out of its validity period.
        Expired = "tls_expired",
        /// The certificate is not valid for another reason.
        Certificate = "tls_certificate",
        /// The TLS handshake failed for another reason.
        Handshake = "tls_handshake",
        /// The connection failed for another reason.
        Connect = "connect",
        /// The connection broke before a response.
        Broken = "connection_broken",
        /// A connection exists and no response came.
        ResponseTimeout = "response_timeout",
        /// Listless's own credentials cannot be read or made.
        Credentials = "own_credentials",
        /// The apiserver responded 401 to Listless's own credentials.
        Unauthorized = "unauthorized",
        /// The apiserver responded 403 to what every user may read.
        Forbidden = "forbidden",
    }
}

// === impl UpstreamCause ===

impl UpstreamCause {
    /// Returns the cause in words, without a full stop.
    pub fn text(self) -> &'static str {
        match self {
            Self::Name => "its host name cannot be resolved",
            Self::Refused => "connection refused",
            Self::NoRoute => "no route to its address",
            Self::ConnectTimeout => "connecting timed out",
            Self::Proxy => "the HTTP proxy refused the tunnel",
            Self::UntrustedIssuer => "its certificate is signed by an unknown authority",
            Self::WrongName => "its certificate is for another name",
            Self::Expired => "its certificate has expired or is not yet valid",
            Self::Certificate => "its certificate is not valid",
            Self::Handshake => "the TLS handshake failed",
            Self::Connect => "connecting failed",
            Self::Broken => "the connection broke before a response",
            Self::ResponseTimeout => "no response in time",
            Self::Credentials => "own credentials cannot be obtained",
            Self::Unauthorized => "own credentials are not accepted (401 Unauthorized)",
            Self::Forbidden => "even /version is forbidden (403 Forbidden)",
        }
    }

    /// Reports whether the apiserver responds, and only Listless's own requests fail.
    pub fn is_refusal(self) -> bool {
        matches!(self, Self::Credentials | Self::Unauthorized | Self::Forbidden)
    }

    /// Returns the state and its cause as one clause: `apiserver not reachable: connection refused`.
    pub fn headline(self) -> String {
        let state = if self.is_refusal() {
            "apiserver does not serve Listless"
        } else {
            "apiserver not reachable"
        };
        format!("{state}: {}", self.text())
    }
}
