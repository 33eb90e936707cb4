//! The one line that announces the proxy's address.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
};

use super::{export::quoted, print};

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

/// Prints the line; `wrong` says what is wrong with the apiserver, if anything.
pub fn announce(announcement: &Announcement, wrong: Option<&str>) -> io::Result<()> {
    print(&line(announcement, wrong))
}

fn line(announcement: &Announcement, wrong: Option<&str>) -> String {
    let Announcement { server, source, kubeconfig, .. } = announcement;
    let wrong = wrong.map_or_else(String::new, |wrong| format!(" ({wrong})"));
    let export = match kubeconfig {
        Some(file) => format!("; export KUBECONFIG={}", quoted(file)),
        None => String::new(),
    };
    format!("listless: serving {source}{wrong} at {server}{export}\n")
}

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
