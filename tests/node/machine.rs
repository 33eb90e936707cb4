//! The requirements of a node on this machine.

use std::path::Path;
use std::process::{Command, Stdio};

/// The required commands, with the Debian package of each.
const COMMANDS: [(&str, &str); 12] = [
    ("go", "golang-go"),
    ("gcc", "gcc"),
    ("jq", "jq"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("setpriv", "util-linux"),
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("containerd", "containerd"),
    ("runc", "runc"),
    ("conntrack", "conntrack"),
    ("buildah", "buildah"),
];
/// Set to 1 where a machine that cannot have a node must fail the suite.
const REQUIRED: &str = "LISTLESS_REQUIRE_NODE";
/// The folder where Debian installs the plugins that connect pods.
pub const PLUGINS: &str = "/usr/lib/cni";

/// The reason why there cannot be a node here.
pub fn lacks() -> Option<String> {
    let user = Command::new("id").arg("-u").output();
    if !user.is_ok_and(|user| user.stdout.trim_ascii() == b"0") {
        return Some("it takes root".to_owned());
    }
    let absent = COMMANDS.iter().find(|(command, _)| !is_there(command));
    if let Some((command, package)) = absent {
        return Some(format!("there is no `{command}`; it is in Debian's package {package}"));
    }
    let plugin = Path::new(PLUGINS).join("bridge");
    (!plugin.exists()).then(|| {
        format!("there is no {}; Debian's package is containernetworking-plugins", plugin.display())
    })
}

/// Reports whether a machine without the requirements must fail the suite.
pub fn is_required() -> bool {
    std::env::var(REQUIRED).is_ok_and(|value| value == "1")
}

/// Reports whether a command can be found.
pub fn is_there(command: &str) -> bool {
    let mut which = Command::new("sh");
    which.args(["-c", "command -v \"$0\""]).arg(command).stdout(Stdio::null());
    which.status().is_ok_and(|status| status.success())
}
