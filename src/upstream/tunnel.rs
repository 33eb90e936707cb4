//! Connections that stop being HTTP: exec, attach, port-forward, proxy and WebSocket watches.
//!
//! Invariants: a tunnel's connection belongs to no pool. No byte after the client's request goes
//! upstream before the apiserver agreed (S-NET-04).

use std::{io, sync::Arc, time::Duration};

use http::{
    HeaderValue, Request, Response, StatusCode,
    header::{HOST, UPGRADE},
};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, copy_bidirectional_with_sizes},
    sync::Notify,
    time::timeout,
};
use tracing::debug;

use super::{
    Error,
    connect::{ConnectError, Connector, Offer},
    slot::Slots,
    socket,
};
use crate::{
    body::Body,
    shares::{Network, Shares},
};

/// The buffer in each direction of a tunnel.
const BUFFER_BYTES: usize = 16 * 1024;

/// The part of all tunnels that callers may hold whose credential was not accepted yet.
const UNPROVEN_PART: usize = 16;

/// The longest time from a request to the head of its response.
const AGREEMENT_TIMEOUT: Duration = Duration::from_secs(30);

/// The opener of a dedicated connection for each upgrade.
#[derive(Clone)]
pub(super) struct Tunnels {
    connector: Arc<Connector>,
    places: Arc<Slots>,
    tunnels_max: usize,
    /// The places of credentials that the apiserver has not accepted.
    unproven: Arc<Slots>,
    shares: Arc<TunnelShares>,
}

/// The shares of senders in the tunnels.
struct TunnelShares {
    /// The shares of accepted credentials, by keyed hashes.
    proven: Shares<u64>,
    /// The shares of networks without an accepted credential.
    unproven: Shares<Network>,
}

/// The sender of a request for a tunnel.
#[derive(Clone, Copy, Debug)]
pub(super) enum TunnelSender {
    /// The only user of the pool.
    OnlyUser,
    /// A credential that the apiserver has accepted before, by its keyed hash.
    Accepted(u64),
    /// A credential that it has not; the network it comes from, if known.
    Unaccepted(Option<Network>),
}

/// Copies bytes both ways until both sides have ended; returns the number of bytes each way.
///
/// The end of one side is passed on while the other may still send.
pub async fn splice(
    mut client: impl AsyncRead + AsyncWrite + Unpin,
    mut upstream: impl AsyncRead + AsyncWrite + Unpin,
) -> io::Result<(u64, u64)> {
    copy_bidirectional_with_sizes(&mut client, &mut upstream, BUFFER_BYTES, BUFFER_BYTES).await
}

// === impl Tunnels ===

impl Tunnels {
    pub(super) fn new(connector: Arc<Connector>, tunnels_max: usize) -> Self {
        let places = || Slots::new(Arc::new(Notify::new()));
        // A tunnel may last for hours: nobody waits for one.
        let shares = TunnelShares {
            proven: Shares::new(tunnels_max, 0, Duration::ZERO),
            unproven: Shares::new(tunnels_max.div_ceil(UNPROVEN_PART), 0, Duration::ZERO),
        };
        let (places, unproven, shares) = (places(), places(), Arc::new(shares));
        Self { connector, places, tunnels_max, unproven, shares }
    }

    /// Sends `request`, whose URI is the endpoint's; connection headers stay unchanged.
    pub(super) async fn open(
        &self,
        mut request: Request<Body>,
        host: &HeaderValue,
        sender: TunnelSender,
    ) -> Result<Response<Body>, Error> {
        let share = match sender {
            TunnelSender::OnlyUser | TunnelSender::Unaccepted(None) => None,
            TunnelSender::Accepted(key) => Some(self.shares.proven.take(key).await),
            TunnelSender::Unaccepted(Some(from)) => Some(self.shares.unproven.take(from).await),
        };
        let place = match sender {
            TunnelSender::Unaccepted(_) => {
                self.unproven.take(self.tunnels_max.div_ceil(UNPROVEN_PART))
            }
            _ => self.places.take(self.tunnels_max),
        };
        let share =
            share.map(|share| share.ok_or(Error::Saturated("upstream tunnels of one caller")));
        let place = place.ok_or(Error::Saturated("upstream tunnels"))?;
        let share = share.transpose()?;
        let (stream, _) = self.connector.connect(Offer::Http1).await?;
        let stream = TokioIo::new(socket::holding(stream, place, share));
        let (mut sender, connection) = http1::handshake(stream).await.map_err(ConnectError::new)?;
        tokio::spawn(async move {
            let outcome = connection.with_upgrades().await;
            debug!(?outcome, "connection for an upgrade ended or was handed over");
        });
        let asked = request.headers().get(UPGRADE).cloned();
        request.headers_mut().insert(HOST, host.clone());
        // An apiserver answers at once, unless the client keeps back what it waits for.
        let response = timeout(AGREEMENT_TIMEOUT, sender.send_request(request)).await;
        let response = response
            .map_err(|elapsed| Error::Broken(elapsed.into()))?
            .map_err(|error| Error::Broken(error.into()))?;
        agreed(&response, asked.as_ref())?;
        Ok(response.map(Body::incoming))
    }
}

/// Rejects a response that switches to a protocol that was not requested.
fn agreed<B>(response: &Response<B>, asked: Option<&HeaderValue>) -> Result<(), Error> {
    let switched = response.headers().get(UPGRADE);
    let same = match (switched, asked) {
        (Some(switched), Some(asked)) => switched.as_bytes().eq_ignore_ascii_case(asked.as_bytes()),
        _ => false,
    };
    if response.status() == StatusCode::SWITCHING_PROTOCOLS && !same {
        return Err(Error::Broken(
            "the apiserver switched to a protocol that was not requested".into(),
        ));
    }
    Ok(())
}
