//! A network between Listless and the apiserver that can be cut and stalled. Clients with a direct
//! connection to the apiserver notice nothing.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A relay that listens on loopback until it is dropped.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    state: watch::Sender<RelayState>,
    accepting: JoinHandle<()>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct RelayState {
    /// The server of new connections.
    authority: String,
    /// Connections of earlier generations are closed.
    generation: u64,
    /// New connections are closed.
    closed: bool,
    /// Nothing is passed on; sent bytes are not lost.
    stalled: bool,
}

const PIECE_BYTES: usize = 16 * 1024;

// === impl Relay ===

impl Relay {
    /// Relays to the server at `authority`.
    pub async fn start(authority: &str) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let authority = authority.to_owned();
        let state = RelayState { authority, generation: 0, closed: false, stalled: false };
        let (state, seen) = watch::channel(state);
        let accepting = tokio::spawn(accept(listener, seen));
        Ok(Self { address, state, accepting })
    }

    /// The address where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Relays new connections to another server; open ones stay where they are.
    pub fn lead_to(&self, authority: &str) {
        self.state.send_modify(|state| authority.clone_into(&mut state.authority));
    }

    /// Closes every connection and accepts no new one for this long.
    pub async fn cut(&self, length: Duration) {
        self.state.send_modify(|state| {
            state.generation += 1;
            state.closed = true;
        });
        tokio::time::sleep(length).await;
        self.state.send_modify(|state| state.closed = false);
    }

    /// Delays all bytes for this long.
    pub async fn stall(&self, length: Duration) {
        self.state.send_modify(|state| state.stalled = true);
        tokio::time::sleep(length).await;
        self.state.send_modify(|state| state.stalled = false);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, state: watch::Receiver<RelayState>) {
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(pass_on(client, state.clone()));
    }
}

/// Both sides are closed at every kind of end; a server that is away closes, as its port would.
async fn pass_on(client: TcpStream, mut state: watch::Receiver<RelayState>) {
    let RelayState { authority, generation, closed, .. } = state.borrow().clone();
    if closed {
        return;
    }
    let Ok(server) = TcpStream::connect(authority).await else { return };
    // Small responses should not wait for more. Where that cannot be set, they do.
    let _ = client.set_nodelay(true).and_then(|()| server.set_nodelay(true));
    let ((client_in, client_out), (server_in, server_out)) =
        (client.into_split(), server.into_split());
    tokio::select! {
        () = copy(client_in, server_out, state.clone()) => {}
        () = copy(server_in, client_out, state.clone()) => {}
        _ = state.wait_for(|state| state.generation != generation) => {}
    }
}

async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut state: watch::Receiver<RelayState>,
) {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let Ok(length) = from.read(&mut piece).await else { return };
        if length == 0 || state.wait_for(|state| !state.stalled).await.is_err() {
            return;
        }
        if to.write_all(&piece[..length]).await.is_err() {
            return;
        }
    }
}
