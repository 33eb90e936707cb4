//! The announcement of a serving proxy. The command line prints it.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
};

/// The announcement of a serving proxy.
#[derive(Clone, Debug)]
pub struct Announcement {
    /// The proxy's address.
    pub server: String,
    /// The source that it serves.
    pub source: String,
    /// The written kubeconfig, if any.
    pub kubeconfig: Option<PathBuf>,
    /// `true` if the apiserver is asked for its version before, so that the line can say what is wrong.
    pub asks_apiserver: bool,
}

/// A function that prints an announcement. The text says what is wrong with the apiserver, if
/// anything.
pub type Announce = fn(&Announcement, Option<&str>) -> io::Result<()>;

/// Returns the address at which a client on this machine reaches a listener.
pub fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        });
    }
    address
}
