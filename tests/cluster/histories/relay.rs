//! A network between Listless and the apiserver that can be cut and stalled.

use std::net::SocketAddr;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Passes bytes on, unless it is told not to.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    state: watch::Sender<State>,
    task: JoinHandle<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    /// Connections of earlier generations are closed.
    generation: u64,
    /// Nothing is passed on; what was sent is not lost.
    stalled: bool,
}

const PIECE_BYTES: usize = 16 * 1024;

// === impl Relay ===

impl Relay {
    /// Listens on a free port in front of a server.
    pub async fn start(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let (state, seen) = watch::channel(State { generation: 0, stalled: false });
        let task = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(pass_on(near, server, seen.clone()));
            }
        });
        Ok(Self { address, state, task })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes every connection there is.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.generation += 1);
    }

    /// Holds back all bytes, or lets them go.
    pub fn stall(&self, stalled: bool) {
        self.state.send_modify(|state| state.stalled = stalled);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A server that is away closes the connection, as its port would.
async fn pass_on(near: TcpStream, server: SocketAddr, mut state: watch::Receiver<State>) {
    let generation = state.borrow().generation;
    let Ok(far) = TcpStream::connect(server).await else { return };
    // Small answers must not wait for more; where that cannot be set they do.
    let _ = near.set_nodelay(true).and_then(|()| far.set_nodelay(true));
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    let (forth, back) = (state.clone(), state.clone());
    tokio::select! {
        () = copy(near_in, far_out, forth) => {}
        () = copy(far_in, near_out, back) => {}
        _ = state.wait_for(|state| state.generation != generation) => {}
    }
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut state: watch::Receiver<State>) {
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
