//! Writes the kubeconfigs of `local` and `gateway`, which send clients to Listless only.
//!
//! The file of `local` has Listless's own authority and token, never the user's credentials. It is
//! replaced atomically, only its owner can read it, and it stays when Listless ends. A file that
//! Listless did not write is never replaced.

use std::{
    ffi::OsString,
    fs::{self, OpenOptions},
    io::{self, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Serialize;
use serde_json::{Value, json};

use crate::upstream::identity::{KUBECONFIG_MARK, Writer, cluster_mark, mark_clusters, writer_of};

/// The content of the file.
#[derive(Clone, Copy)]
pub struct Kubeconfig<'a> {
    /// The URL of Listless.
    pub server: &'a str,
    /// The certificate of its authority.
    pub authority_pem: &'a str,
    /// The token that stands for the user.
    pub token: &'a str,
    /// The name of the context, as in the source kubeconfig.
    pub context: &'a str,
    /// The context's namespace.
    pub namespace: &'a str,
}

/// The reason why the file was not written.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// The file belongs to someone else.
    #[error(
        "{} was not written by listless and is not replaced; pass another file to --write-kubeconfig",
        .0.display()
    )]
    NotOurs(PathBuf),
    /// The file that was to be read is someone else's.
    #[error(
        "{} was not written by listless; pass the file that listless local wrote, or leave --written \
         out for ~/.kube/listless",
        .0.display()
    )]
    NotWritten(PathBuf),
    /// The clients of a running Listless use the file.
    #[error(
        "{} leads to the listless that runs at {server} and is not replaced; pass another file to \
         --write-kubeconfig",
        .file.display()
    )]
    InUse {
        /// The file.
        file: PathBuf,
        /// The server of the running Listless.
        server: String,
    },
    /// The file could not be read.
    #[error("cannot read {}", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The cause.
        #[source]
        source: Box<kube::config::KubeconfigError>,
    },
    /// The file could not be written.
    #[error("cannot write {}", .file.display())]
    Unwritable {
        /// The file.
        file: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// The name of the cluster and the user in the file.
const NAME: &str = "listless";

/// The timeout for a connection to a Listless on this machine.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

// === impl Kubeconfig ===

impl Kubeconfig<'_> {
    /// Writes the file atomically, readable by its owner only.
    pub fn write(&self, file: &Path) -> Result<(), KubeconfigError> {
        write(&self.document(), file)
    }

    fn document(&self) -> Value {
        let authority = BASE64_STANDARD.encode(self.authority_pem);
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{
                "name": NAME,
                "cluster": {
                    "server": self.server,
                    "certificate-authority-data": authority,
                    "extensions": [cluster_mark()],
                },
            }],
            "users": [{ "name": NAME, "user": { "token": self.token } }],
            "contexts": [{
                "name": self.context,
                "context": { "cluster": NAME, "user": NAME, "namespace": self.namespace },
            }],
            "current-context": self.context,
        })
    }
}

/// Writes a given kubeconfig in the same way.
pub fn write_kubeconfig(
    mut kubeconfig: kube::config::Kubeconfig,
    file: &Path,
) -> Result<(), KubeconfigError> {
    mark_clusters(&mut kubeconfig);
    write(&kubeconfig, file)
}

/// Returns the server of a kubeconfig that Listless wrote, if something listens there on this
/// machine.
pub fn running_server(file: &Path) -> Option<String> {
    let server = read_ours(file).ok()?.clusters.into_iter().next()?.cluster?.server?;
    let address: SocketAddr = server.strip_prefix("https://")?.parse().ok()?;
    let listens =
        address.ip().is_loopback() && TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).is_ok();
    listens.then_some(server)
}

/// Returns the token of a kubeconfig that was written for this context, so that its clients stay
/// valid.
pub fn token_of(file: &Path, context: &str) -> Option<String> {
    let written = read_ours(file).ok()?;
    if written.current_context.as_deref() != Some(context) {
        return None;
    }
    let user = written.auth_infos.iter().find(|user| user.name == NAME)?.auth_info.as_ref()?;
    // The token's type hides it from logs, but serializes it.
    let user = serde_json::to_value(user).ok()?;
    Some(user["token"].as_str()?.to_owned())
}

/// Reads a kubeconfig that Listless wrote, and no other.
pub(crate) fn read_ours(file: &Path) -> Result<kube::config::Kubeconfig, KubeconfigError> {
    let unreadable =
        |source| KubeconfigError::Unreadable { file: file.to_owned(), source: Box::new(source) };
    refuse_foreign(file).map_err(|error| match error {
        KubeconfigError::NotOurs(file) => KubeconfigError::NotWritten(file),
        error => error,
    })?;
    kube::config::Kubeconfig::read_from(file).map_err(unreadable)
}

/// Returns a kubeconfig as YAML. Each value is on its key's line, as kubectl writes it and scripts
/// expect it.
pub fn yaml(document: &impl Serialize) -> Result<String, serde_saphyr::ser::Error> {
    let options = serde_saphyr::ser_options! { folded_wrap_chars: usize::MAX };
    serde_saphyr::to_string_with_options(document, options)
}

fn write(document: &impl Serialize, file: &Path) -> Result<(), KubeconfigError> {
    refuse_foreign(file)?;
    let unwritable = |source| KubeconfigError::Unwritable { file: file.to_owned(), source };
    if let Some(directory) = file.parent().filter(|path| !path.as_os_str().is_empty()) {
        fs::create_dir_all(directory).map_err(unwritable)?;
    }
    let yaml = yaml(document).map_err(|error| unwritable(io::Error::other(error)))?;
    let text = format!("{KUBECONFIG_MARK}; replaced whenever it starts.\n{yaml}");
    replace(file, text.as_bytes()).map_err(unwritable)
}

fn refuse_foreign(file: &Path) -> Result<(), KubeconfigError> {
    match writer_of(file) {
        Ok(Writer::Listless | Writer::Nobody) => Ok(()),
        Ok(Writer::Other) => Err(KubeconfigError::NotOurs(file.to_owned())),
        Err(source) => Err(KubeconfigError::Unwritable { file: file.to_owned(), source }),
    }
}

/// Writes a temporary file and renames it, so that a reader sees the old file or the new one.
fn replace(file: &Path, content: &[u8]) -> io::Result<()> {
    let mut name = file.file_name().map(OsString::from).ok_or(io::ErrorKind::IsADirectory)?;
    name.push(format!(".{}", std::process::id()));
    let beside = file.with_file_name(name);
    let written = write_private(&beside, content).and_then(|()| fs::rename(&beside, file));
    if written.is_err() {
        // The temporary file is useless now; the first error is the one to report.
        let _left_behind = fs::remove_file(&beside);
    }
    written
}

fn write_private(file: &Path, content: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut open = options.open(file)?;
    open.write_all(content)?;
    open.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITTEN: Kubeconfig<'static> = Kubeconfig {
        server: "https://127.0.0.1:7443",
        authority_pem: "-----BEGIN CERTIFICATE-----",
        token: "listless-0123",
        context: "yes: a \"name\"",
        namespace: "shop",
    };

    #[test]
    fn a_client_reads_back_the_written_kubeconfig() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("new/config");
        WRITTEN.write(&file).unwrap();
        let read = kube::config::Kubeconfig::read_from(&file).unwrap();
        assert_eq!(read.current_context.as_deref(), Some(WRITTEN.context));
        let context = read.contexts[0].context.as_ref().unwrap();
        assert_eq!(context.namespace.as_deref(), Some("shop"));
        let cluster = read.clusters[0].cluster.as_ref().unwrap();
        assert_eq!(cluster.server.as_deref(), Some(WRITTEN.server));
        let pem = BASE64_STANDARD.decode(cluster.certificate_authority_data.as_ref().unwrap());
        assert_eq!(pem.unwrap(), WRITTEN.authority_pem.as_bytes());
    }

    #[test]
    fn a_long_value_is_on_the_line_of_its_key() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        let authority_pem = &"-----BEGIN CERTIFICATE-----\n".repeat(200);
        Kubeconfig { authority_pem, ..WRITTEN }.write(&file).unwrap();
        let data = BASE64_STANDARD.encode(authority_pem);
        let text = fs::read_to_string(&file).unwrap();
        let line = format!("certificate-authority-data: {data}");
        assert!(text.lines().any(|found| found.trim() == line), "{text}");
    }

    #[test]
    #[cfg(unix)]
    fn only_the_owner_may_read_it_and_no_temporary_file_is_left() {
        use std::os::unix::fs::PermissionsExt;

        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        WRITTEN.write(&file).unwrap();
        WRITTEN.write(&file).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_server_of_a_written_kubeconfig_is_running_while_something_listens_there() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        assert_eq!(running_server(&file), None);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let server = &format!("https://{}", listener.local_addr().unwrap());
        Kubeconfig { server, ..WRITTEN }.write(&file).unwrap();
        assert_eq!(running_server(&file).as_ref(), Some(server));
        drop(listener);
        assert_eq!(running_server(&file), None);
    }

    #[test]
    fn a_written_kubeconfig_is_still_ours_without_its_first_line() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        let document = WRITTEN.document().to_string();
        let mut given = kube::config::Kubeconfig::from_yaml(&document).unwrap();
        given.clusters[0].cluster.as_mut().unwrap().extensions = None;
        let writers: [&dyn Fn() -> Result<(), KubeconfigError>; 2] =
            [&|| WRITTEN.write(&file), &|| write_kubeconfig(given.clone(), &file)];
        for write_one in writers {
            write_one().unwrap();
            let text = fs::read_to_string(&file).unwrap();
            fs::write(&file, text.split_once('\n').unwrap().1).unwrap();
            assert!(read_ours(&file).is_ok());
            assert_eq!(token_of(&file, WRITTEN.context).as_deref(), Some(WRITTEN.token));
        }
    }

    #[test]
    fn a_kubeconfig_of_someone_else_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        fs::write(&file, "apiVersion: v1\nkind: Config\n").unwrap();
        let error = WRITTEN.write(&file).unwrap_err();
        assert!(matches!(error, KubeconfigError::NotOurs(_)), "{error}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "apiVersion: v1\nkind: Config\n");
    }
}
