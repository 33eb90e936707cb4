//! The one line that says where to go.

use std::{io, path::PathBuf};

use super::print;

/// What a proxy that serves tells its user.
#[derive(Clone, Debug)]
pub struct Announcement {
    /// Where it serves.
    pub server: String,
    /// What it stands for.
    pub source: String,
    /// The kubeconfig to use, if one was written.
    pub kubeconfig: Option<PathBuf>,
}

/// Prints the line.
pub fn announce(announcement: &Announcement) -> io::Result<()> {
    let Announcement { server, source, kubeconfig } = announcement;
    let export = match kubeconfig {
        Some(file) => format!("; export KUBECONFIG={}", file.display()),
        None => String::new(),
    };
    print(&format!("listless: serving {source} at {server}{export}\n"))
}
