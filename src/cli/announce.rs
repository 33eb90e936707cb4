//! The one line that announces the proxy's address.

use std::io;

use super::{export::quoted, print};
use crate::app::Announcement;

/// Prints the line; `wrong` says what is wrong with the apiserver, if anything.
pub(super) fn announce(announcement: &Announcement, wrong: Option<&str>) -> io::Result<()> {
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
