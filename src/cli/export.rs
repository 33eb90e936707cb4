//! `listless kubeconfig`: prints the export that sends clients through a running Listless.
//!
//! It reads the kubeconfig that Listless wrote, and writes none itself. If no Listless listens
//! there, it fails and prints nothing.

use std::{
    net::{TcpStream, ToSocketAddrs},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use http::Uri;
use kube::config::Kubeconfig;

use super::print;
use crate::{
    app::{
        kubeconfig::{read_ours, yaml},
        options::{self, KubeconfigOptions, UsageError},
    },
    upstream::identity,
};

/// The options of `listless kubeconfig`.
#[derive(Clone, Debug, Args)]
pub(super) struct Arguments {
    /// The kubeconfig that listless local or listless gateway wrote [default: ~/.kube/listless].
    #[arg(long, value_name = "FILE")]
    written: Option<PathBuf>,
    /// The output format [default: export; yaml with --proxy-url].
    #[arg(short, long, value_enum)]
    output: Option<Output>,
    /// Append your own kubeconfig files to the export, so that your other contexts stay available.
    #[arg(long, conflicts_with = "proxy_url")]
    beside_source: bool,
    /// Print a kubeconfig that keeps the apiserver's own address, and names Listless as its proxy.
    #[arg(long)]
    proxy_url: bool,
    /// The context that Listless serves.
    #[command(flatten)]
    source: KubeconfigOptions,
}

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A line for a shell: eval "$(listless kubeconfig)".
    Export,
    /// A kubeconfig with the clients' token.
    Yaml,
}

/// The timeout for a connection to a Listless on this machine or near it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Prints the requested form.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    refuse_idle_options(arguments)?;
    let file = arguments.written.clone().or_else(options::kubeconfig_of_local);
    let file = file.ok_or_else(|| {
        UsageError("there is no home directory; pass a file with --written".to_owned())
    })?;
    if !file.exists() {
        bail!("{} does not exist: start listless local, which writes it", file.display());
    }
    let written = read_ours(&file)?;
    if let Some(context) = &arguments.source.context {
        refuse_other_context(context, &written, &file)?;
    }
    let server = server(&written).with_context(|| {
        format!(
            "{} names no server; start listless \
                                                           local, which writes it again",
            file.display()
        )
    })?;
    look_for_listener(&server)?;
    let text = match arguments.output {
        _ if arguments.proxy_url => as_yaml(behind_proxy(arguments, &written, &server)?)?,
        Some(Output::Yaml) => as_yaml(written)?,
        Some(Output::Export) | None => {
            let mut paths = quoted(&file);
            if arguments.beside_source {
                let source = arguments.source.kubeconfig.as_deref();
                for path in identity::places(source)? {
                    paths += &format!(":{}", quoted(&path));
                }
            }
            format!("export KUBECONFIG={paths}\n")
        }
    };
    Ok(print(&text)?)
}

/// Refuses options that would have no effect together.
fn refuse_idle_options(arguments: &Arguments) -> Result<(), UsageError> {
    let reads_source = arguments.beside_source || arguments.proxy_url;
    let text = match arguments.output {
        Some(Output::Yaml) if arguments.beside_source => {
            "--beside-source needs -o export: one file cannot name others; leave -o yaml out"
        }
        Some(Output::Export) if arguments.proxy_url => {
            "--proxy-url prints a kubeconfig, which is no export; leave -o export out"
        }
        _ if arguments.source.kubeconfig.is_some() && !reads_source => {
            "--kubeconfig has no effect without --beside-source or --proxy-url; pass one of them, or \
             name the file that listless local wrote with --written"
        }
        _ => return Ok(()),
    };
    Err(UsageError(text.to_owned()))
}

/// Refuses a context that the running Listless does not serve.
fn refuse_other_context(asked: &str, written: &Kubeconfig, file: &Path) -> anyhow::Result<()> {
    let served = written.current_context.as_deref().unwrap_or_default();
    if asked != served {
        bail!(
            "--context {asked:?} is not served: {} is for context {served:?}; start listless local \
             with --context {asked:?}, or leave --context out",
            file.display()
        );
    }
    Ok(())
}

/// Returns the server of the current context.
fn server(written: &Kubeconfig) -> Option<Uri> {
    let current = written.current_context.as_deref()?;
    let context = written.contexts.iter().find(|named| named.name == current)?.context.as_ref()?;
    let cluster = written.clusters.iter().find(|named| named.name == context.cluster)?;
    cluster.cluster.as_ref()?.server.as_ref()?.parse().ok()
}

fn look_for_listener(server: &Uri) -> anyhow::Result<()> {
    let authority = server.authority().context("the server's URL has no address")?;
    let host = authority.host().trim_matches(['[', ']']);
    let addresses = (host, authority.port_u16().unwrap_or(443)).to_socket_addrs();
    let addresses = addresses.with_context(|| format!("{authority} cannot be resolved"))?;
    for address in addresses {
        if TcpStream::connect_timeout(&address, PATIENCE).is_ok() {
            return Ok(());
        }
    }
    bail!("nothing listens at {authority}; start listless local")
}

/// Returns the served context of the source with Listless as its proxy, and with Listless's user
/// entry.
fn behind_proxy(
    arguments: &Arguments,
    written: &Kubeconfig,
    server: &Uri,
) -> anyhow::Result<Kubeconfig> {
    let authority = server.authority().context("the server's URL has no address")?;
    let clusters = written.clusters.iter().filter_map(|named| named.cluster.as_ref());
    let data = clusters.filter_map(|cluster| cluster.certificate_authority_data.as_deref()).next();
    let data = data.context("the kubeconfig of Listless has no certificate authority")?;
    let source = arguments.source.kubeconfig.as_deref();
    let served = written.current_context.as_deref();
    let mut leads = identity::proxied(source, served, &format!("http://{authority}"), data)?;
    refuse_path(&leads)?;
    if let (Some(named), Some(user)) = (leads.contexts.first_mut(), written.auth_infos.first())
        && let Some(context) = &mut named.context
    {
        context.user = Some(user.name.clone());
        leads.auth_infos = vec![user.clone()];
    }
    Ok(leads)
}

/// Refuses an apiserver below a path. Its clients send that path themselves, and Listless would add
/// it again.
fn refuse_path(kubeconfig: &Kubeconfig) -> anyhow::Result<()> {
    let clusters = kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref());
    for server in clusters.filter_map(|cluster| cluster.server.as_deref()) {
        if !server.parse::<Uri>()?.path().trim_end_matches('/').is_empty() {
            bail!(
                "--proxy-url cannot serve an apiserver below a path, such as {server}; use listless \
                 kubeconfig or listless kubeconfig -o yaml, without --proxy-url"
            );
        }
    }
    Ok(())
}

/// Returns the kubeconfig with the marks, so that Listless does not take it for the cluster's.
fn as_yaml(mut kubeconfig: Kubeconfig) -> anyhow::Result<String> {
    identity::mark_clusters(&mut kubeconfig);
    let text = yaml(&kubeconfig).context("cannot serialize the kubeconfig")?;
    Ok(format!("{} kubeconfig.\n{text}", identity::KUBECONFIG_MARK))
}

/// Quotes a path as one word of a shell. The path becomes absolute, so that it names the same file
/// from every directory.
pub(super) fn quoted(path: &Path) -> String {
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
    fn a_path_is_quoted_as_one_word_of_a_shell() {
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
    fn a_server_that_does_not_listen_is_named() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let uri: Uri = format!("https://{address}").parse().expect("a URI");
        assert!(look_for_listener(&uri).is_ok());
        drop(listener);
        let error = look_for_listener(&uri).expect_err("nobody listens").to_string();
        assert!(error.starts_with(&format!("nothing listens at {address}")), "{error}");
    }
}
