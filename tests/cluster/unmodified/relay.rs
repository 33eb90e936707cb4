//! A TCP relay between Listless and the apiserver, to cut the one without touching the other.
//!
//! What is open when it cuts is closed at once, and for a while nobody gets through; clients that
//! talk to the apiserver straight notice nothing.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A relay that listens on loopback until it is dropped.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    state: watch::Sender<State>,
    accepting: JoinHandle<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Lets everybody through; the number changes with each cut.
    Open(u32),
    /// Lets nobody through.
    Cut(u32),
}

// === impl Relay ===

impl Relay {
    /// Relays to the server at `authority`.
    pub async fn start(authority: &str) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let (state, open) = watch::channel(State::Open(0));
        let accepting = tokio::spawn(accept(listener, authority.to_owned(), open));
        Ok(Self { address, state, accepting })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes every connection and refuses new ones for so long.
    pub async fn cut(&self, length: Duration) {
        let cuts = match *self.state.borrow() {
            State::Open(cuts) | State::Cut(cuts) => cuts + 1,
        };
        self.state.send_replace(State::Cut(cuts));
        tokio::time::sleep(length).await;
        self.state.send_replace(State::Open(cuts));
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, authority: String, state: watch::Receiver<State>) {
    while let Ok((client, _)) = listener.accept().await {
        let (authority, state) = (authority.clone(), state.clone());
        tokio::spawn(async move {
            // However it ends, both sides are closed.
            let _ = relay(client, &authority, state).await;
        });
    }
}

async fn relay(
    mut client: TcpStream,
    authority: &str,
    mut state: watch::Receiver<State>,
) -> io::Result<()> {
    if matches!(*state.borrow_and_update(), State::Cut(_)) {
        return Ok(());
    }
    let mut server = TcpStream::connect(authority).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    tokio::select! {
        done = tokio::io::copy_bidirectional(&mut client, &mut server) => done.map(drop),
        _ = state.changed() => Ok(()),
    }
}
