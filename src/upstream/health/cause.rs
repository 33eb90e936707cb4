//! Causes of failed exchanges, found in the errors of the operating system and of TLS.

use std::{error::Error as StdError, fmt, io, sync::Arc};

use rustls::CertificateError;

use crate::{metrics::UpstreamCause, upstream::Error};

/// A host name without an address.
#[derive(Debug, thiserror::Error)]
#[error("cannot resolve host name {host}")]
pub(in crate::upstream) struct Unresolved {
    /// The name.
    pub(in crate::upstream) host: String,
    /// The resolver's own error.
    #[source]
    pub(in crate::upstream) source: io::Error,
}

/// An HTTP proxy that opened no tunnel, with its status line.
#[derive(Debug, thiserror::Error)]
#[error("the proxy refused the tunnel: {0}")]
pub(in crate::upstream) struct ProxyRefused(pub(in crate::upstream) String);

/// An error of connecting, with its cause; clones share it.
#[derive(Clone)]
pub(in crate::upstream) struct ConnectFailure {
    cause: UpstreamCause,
    error: Arc<dyn StdError + Send + Sync>,
}

// === impl ConnectFailure ===

impl ConnectFailure {
    /// Finds the cause of `error`.
    pub(in crate::upstream) fn new(error: impl StdError + Send + Sync + 'static) -> Self {
        Self { cause: connect_cause(&error), error: Arc::new(error) }
    }
}

impl fmt::Debug for ConnectFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl fmt::Display for ConnectFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl StdError for ConnectFailure {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.error.source()
    }
}

/// Returns the cause of a failed exchange; none if the apiserver had no part in it.
pub fn cause_of(error: &Error) -> Option<UpstreamCause> {
    Some(match error {
        Error::Connect(error) => match error.downcast_ref::<ConnectFailure>() {
            Some(failure) => failure.cause,
            // No attempt to connect failed: the request was not sent, which a probe must explain.
            None => UpstreamCause::Broken,
        },
        Error::ConnectTimeout => UpstreamCause::ConnectTimeout,
        Error::Broken(_) => UpstreamCause::Broken,
        Error::Credentials(_) => UpstreamCause::Credentials,
        Error::RequestBody(_) | Error::Saturated(_) => return None,
    })
}

/// Returns the cause that an error of connecting, or one of its sources, tells of.
pub fn connect_cause(error: &(dyn StdError + 'static)) -> UpstreamCause {
    let mut next = Some(error);
    while let Some(error) = next {
        // The source of an `io::Error` is that of the error in it: the inner one must be taken out.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let found = match inner {
            Some(inner) => known(inner),
            None => known(error),
        };
        if let Some(cause) = found {
            return cause;
        }
        next = inner.map_or_else(|| error.source(), |inner| inner.source());
    }
    UpstreamCause::Connect
}

fn known(error: &(dyn StdError + 'static)) -> Option<UpstreamCause> {
    if error.is::<Unresolved>() {
        return Some(UpstreamCause::Name);
    }
    if error.is::<ProxyRefused>() {
        return Some(UpstreamCause::Proxy);
    }
    if let Some(error) = error.downcast_ref::<rustls::Error>() {
        return Some(of_tls(error));
    }
    match error.downcast_ref::<io::Error>()?.kind() {
        io::ErrorKind::ConnectionRefused => Some(UpstreamCause::Refused),
        io::ErrorKind::TimedOut => Some(UpstreamCause::ConnectTimeout),
        io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::AddrNotAvailable => Some(UpstreamCause::NoRoute),
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof => Some(UpstreamCause::Broken),
        _ => None,
    }
}

fn of_tls(error: &rustls::Error) -> UpstreamCause {
    let rustls::Error::InvalidCertificate(error) = error else { return UpstreamCause::Handshake };
    match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            UpstreamCause::UntrustedIssuer
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            UpstreamCause::WrongName
        }
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => UpstreamCause::Expired,
        _ => UpstreamCause::Certificate,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(error: impl StdError + Send + Sync + 'static) -> UpstreamCause {
        let error = Error::Connect(Box::new(ConnectFailure::new(error)));
        let copied = cause_of(&error.copy());
        assert_eq!(copied, cause_of(&error), "a copy has the same cause");
        copied.expect("a cause")
    }

    fn tls(error: CertificateError) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, rustls::Error::InvalidCertificate(error))
    }

    #[test]
    fn each_failure_of_connecting_has_its_cause() {
        let unresolved =
            Unresolved { host: "api".to_owned(), source: io::Error::other("no such host") };
        for (error, expected) in [
            (io::ErrorKind::ConnectionRefused.into(), UpstreamCause::Refused),
            (io::ErrorKind::TimedOut.into(), UpstreamCause::ConnectTimeout),
            (io::ErrorKind::NetworkUnreachable.into(), UpstreamCause::NoRoute),
            (io::ErrorKind::UnexpectedEof.into(), UpstreamCause::Broken),
            (io::Error::other(unresolved), UpstreamCause::Name),
            (io::Error::other(ProxyRefused("HTTP/1.1 407".to_owned())), UpstreamCause::Proxy),
            (tls(CertificateError::UnknownIssuer), UpstreamCause::UntrustedIssuer),
            (tls(CertificateError::NotValidForName), UpstreamCause::WrongName),
            (tls(CertificateError::Expired), UpstreamCause::Expired),
            (tls(CertificateError::BadEncoding), UpstreamCause::Certificate),
            (io::Error::other(rustls::Error::HandshakeNotComplete), UpstreamCause::Handshake),
            (io::Error::other("something else"), UpstreamCause::Connect),
        ] {
            let text = error.to_string();
            assert_eq!(cause(error), expected, "{text}");
        }
        assert_eq!(cause_of(&Error::ConnectTimeout), Some(UpstreamCause::ConnectTimeout));
        assert_eq!(cause_of(&Error::Saturated("places")), None);
    }
}
