//! `listless kubeconfig`: what to export so that clients go through a running Listless.
//!
//! It reads the kubeconfig that Listless wrote, and writes none itself. Whom nobody would answer is
//! not exported: then it fails and prints nothing.

use std::{
    net::{TcpStream, ToSocketAddrs},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use http::Uri;
use kube::config::Kubeconfig;

use super::{
    KubeconfigOptions, UsageError,
    kubeconfig::{read_ours, yaml},
    options, print,
};
use crate::upstream::identity;

/// What is printed.
#[derive(Clone, Debug, Args)]
pub(super) struct Arguments {
    /// The kubeconfig that listless local or listless gateway wrote [default: ~/.kube/listless].
    #[arg(long, value_name = "FILE")]
    written: Option<PathBuf>,
    /// What to print.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    /// Export the source's files behind it, so that other contexts go where they always went.
    #[arg(long, conflicts_with = "proxy_url")]
    beside_source: bool,
    /// Print a kubeconfig that keeps the apiserver's own address, and names Listless as its proxy.
    #[arg(long)]
    proxy_url: bool,
    /// What Listless stands for.
    #[command(flatten)]
    source: KubeconfigOptions,
}

/// In which form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A line for a shell: eval "$(listless kubeconfig)".
    #[default]
    Export,
    /// A kubeconfig, with the token that clients come with.
    Yaml,
}

/// How long somebody on this machine or near it takes to accept a connection.
const PATIENCE: Duration = Duration::from_secs(2);

/// Prints it.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let file = arguments.written.clone().or_else(options::kubeconfig_of_local);
    let file = file.ok_or_else(|| {
        UsageError("there is no home directory; name a file with --written".to_owned())
    })?;
    if !file.exists() {
        bail!("{} is not there: start listless local, which writes it", file.display());
    }
    let written = read_ours(&file)?;
    let server = server(&written).with_context(|| format!("{} names no server", file.display()))?;
    look_for_listener(&server)?;
    let text = match arguments.output {
        _ if arguments.proxy_url => as_yaml(&behind_proxy(arguments, &written, &server)?)?,
        Output::Yaml => as_yaml(&written)?,
        Output::Export => {
            let mut paths = quoted(&file);
            if arguments.beside_source {
                let source = arguments.source.kubeconfig.as_deref();
                for path in identity::places(source).iter().filter(|path| **path != file) {
                    paths += &format!(":{}", quoted(path));
                }
            }
            format!("export KUBECONFIG={paths}\n")
        }
    };
    Ok(print(&text)?)
}

/// Where the current context leads.
fn server(written: &Kubeconfig) -> Option<Uri> {
    let current = written.current_context.as_deref()?;
    let context = written.contexts.iter().find(|named| named.name == current)?.context.as_ref()?;
    let cluster = written.clusters.iter().find(|named| named.name == context.cluster)?;
    cluster.cluster.as_ref()?.server.as_ref()?.parse().ok()
}

fn look_for_listener(server: &Uri) -> anyhow::Result<()> {
    let authority = server.authority().context("the server has no address")?;
    let host = authority.host().trim_matches(['[', ']']);
    let addresses = (host, authority.port_u16().unwrap_or(443)).to_socket_addrs();
    let addresses = addresses.with_context(|| format!("{authority} cannot be found"))?;
    for address in addresses {
        if TcpStream::connect_timeout(&address, PATIENCE).is_ok() {
            return Ok(());
        }
    }
    bail!("nothing listens at {authority}; is listless local running?")
}

/// The source's context, with Listless as its proxy and its user as Listless knows it.
fn behind_proxy(
    arguments: &Arguments,
    written: &Kubeconfig,
    server: &Uri,
) -> anyhow::Result<Kubeconfig> {
    let asked = arguments.source.context.as_deref().or(written.current_context.as_deref());
    let authority = server.authority().context("the server has no address")?;
    let clusters = written.clusters.iter().filter_map(|named| named.cluster.as_ref());
    let data = clusters.filter_map(|cluster| cluster.certificate_authority_data.as_deref()).next();
    let data = data.context("the kubeconfig of Listless names no authority")?;
    let source = arguments.source.kubeconfig.as_deref();
    let mut leads = identity::proxied(source, asked, &format!("http://{authority}"), data)?;
    if let (Some(named), Some(user)) = (leads.contexts.first_mut(), written.auth_infos.first())
        && let Some(context) = &mut named.context
    {
        context.user = Some(user.name.clone());
        leads.auth_infos = vec![user.clone()];
    }
    Ok(leads)
}

fn as_yaml(kubeconfig: &Kubeconfig) -> anyhow::Result<String> {
    yaml(kubeconfig).context("the kubeconfig cannot be written")
}

/// A path as one word of a shell; absolute, so that it is the same file from every directory.
fn quoted(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_one_word_of_a_shell() {
        assert_eq!(quoted(Path::new("/opt/jane/.kube/listless")), "/opt/jane/.kube/listless");
        assert_eq!(quoted(Path::new("/a b/$c")), "'/a b/$c'");
        assert_eq!(quoted(Path::new("/it's")), r"'/it'\''s'");
    }

    #[test]
    fn the_server_is_that_of_the_current_context() {
        let text = r#"
clusters: [{name: a, cluster: {server: "https://a:1"}}, {name: b, cluster: {server: "https://b:2"}}]
contexts: [{name: x, context: {cluster: a}}, {name: y, context: {cluster: b}}]
current-context: y
"#;
        let kubeconfig = Kubeconfig::from_yaml(text).expect("a kubeconfig");
        assert_eq!(server(&kubeconfig).expect("a server"), "https://b:2/");
        assert_eq!(server(&Kubeconfig::default()), None);
    }

    #[test]
    fn who_does_not_listen_is_named() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let uri: Uri = format!("https://{address}").parse().expect("a URI");
        assert!(look_for_listener(&uri).is_ok());
        drop(listener);
        let error = look_for_listener(&uri).expect_err("nobody listens").to_string();
        assert!(error.starts_with(&format!("nothing listens at {address}")), "{error}");
    }
}
