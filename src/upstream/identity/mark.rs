//! The marks of Listless's own kubeconfigs. They lead clients to Listless, never to the apiserver.
//!
//! One mark is a comment in the first line, which kubectl drops when it writes the file. The other
//! is an extension of the cluster's entry, which kubectl keeps, also when it merges files.

use std::{
    fs::{self, File},
    io::{self, Read},
    mem,
    path::Path,
};

use kube::config::{Kubeconfig, NamedCluster, NamedContext, NamedExtension};
use serde_json::json;

/// The start of the first line of each kubeconfig that Listless writes or prints, in every version.
pub const KUBECONFIG_MARK: &str = "# Written by listless";

/// The name of the extension of each cluster entry that Listless writes or prints.
const EXTENSION: &str = "listless.dev";

/// The maximum size of a file that is searched for marked entries.
const FILE_BYTES_MAX: usize = 1024 * 1024;

/// The writer of a kubeconfig.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// Listless, in any version. Another program may have rewritten the file since.
    Listless,
    /// Another program, or the user.
    Other,
    /// None: the file is empty or does not exist.
    Nobody,
}

/// Returns the writer of a file.
pub fn writer_of(file: &Path) -> io::Result<Writer> {
    let mut content = Vec::new();
    let read = File::open(file)
        .and_then(|open| open.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut content));
    match read {
        Ok(_) if content.is_empty() => Ok(Writer::Nobody),
        Ok(_) if content.starts_with(KUBECONFIG_MARK.as_bytes()) => Ok(Writer::Listless),
        Ok(_) if has_only_own_clusters(&content) => Ok(Writer::Listless),
        Ok(_) => Ok(Writer::Other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Writer::Nobody),
        Err(error) => Err(error),
    }
}

/// Reports whether Listless wrote a file. It opens regular files only: a pipe can be read once.
pub(super) fn is_ours(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|metadata| metadata.is_file())
        && matches!(writer_of(file), Ok(Writer::Listless))
}

fn has_only_own_clusters(content: &[u8]) -> bool {
    if content.len() > FILE_BYTES_MAX {
        return false;
    }
    let text = std::str::from_utf8(content).ok();
    let kubeconfig = text.and_then(|text| Kubeconfig::from_yaml(text).ok());
    kubeconfig.is_some_and(|Kubeconfig { clusters, .. }| {
        !clusters.is_empty() && clusters.iter().all(leads_to_listless)
    })
}

/// Reports whether Listless wrote a cluster's entry.
pub(super) fn leads_to_listless(named: &NamedCluster) -> bool {
    let extensions = named.cluster.as_ref().and_then(|cluster| cluster.extensions.as_deref());
    extensions.unwrap_or_default().iter().any(|extension| extension.name == EXTENSION)
}

/// Returns the extension of each cluster entry that Listless writes or prints.
pub fn cluster_mark() -> NamedExtension {
    NamedExtension { name: EXTENSION.to_owned(), extension: json!({ "writer": "listless" }) }
}

/// Marks each cluster entry of a kubeconfig that is to be written or printed.
pub fn mark_clusters(kubeconfig: &mut Kubeconfig) {
    let unmarked = kubeconfig.clusters.iter_mut().filter(|named| !leads_to_listless(named));
    for cluster in unmarked.filter_map(|named| named.cluster.as_mut()) {
        cluster.extensions.get_or_insert_default().push(cluster_mark());
    }
}

/// Removes the marked clusters and their contexts from a kubeconfig, and returns them as another
/// one. Its current context is the removed one, if that was a context of these.
pub(super) fn split_off_own(kubeconfig: &mut Kubeconfig) -> Kubeconfig {
    let clusters = mem::take(&mut kubeconfig.clusters).into_iter();
    let (own, others): (Vec<_>, Vec<_>) = clusters.partition(leads_to_listless);
    kubeconfig.clusters = others;
    let is_own = |named: &NamedContext| {
        let cluster = named.context.as_ref().map(|context| &context.cluster);
        own.iter().any(|known| Some(&known.name) == cluster)
    };
    let contexts = mem::take(&mut kubeconfig.contexts).into_iter();
    let (own_contexts, others): (Vec<_>, Vec<_>) = contexts.partition(is_own);
    kubeconfig.contexts = others;
    let is_current = |name: &mut String| own_contexts.iter().any(|named| named.name == *name);
    let current_context = kubeconfig.current_context.take_if(is_current);
    Kubeconfig { clusters: own, contexts: own_contexts, current_context, ..Kubeconfig::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As kubectl rewrites a kubeconfig of Listless, with the place of a second cluster.
    const REWRITTEN: &str = "apiVersion: v1
kind: Config
clusters:
- cluster:
    extensions:
    - extension:
        writer: listless
      name: listless.dev
    server: https://127.0.0.1:7443
  name: listless
SECOND
contexts:
- context: {cluster: listless, user: listless}
  name: prod
- context: {cluster: c, user: u}
  name: staging
current-context: prod
";
    const SECOND: &str = "- {name: c, cluster: {server: 'https://10.0.0.1'}}";

    #[test]
    fn a_file_of_listless_has_the_mark() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("config");
        let writer = || (writer_of(&file).expect("readable"), is_ours(&file));
        assert_eq!(writer(), (Writer::Nobody, false));
        for (text, expected) in [
            ("", Writer::Nobody),
            ("kind: Config\n", Writer::Other),
            ("clusters: [", Writer::Other),
            ("# Written by li", Writer::Other),
            ("# Written by listless; replaced whenever it starts.\n", Writer::Listless),
            (&*REWRITTEN.replace("SECOND", ""), Writer::Listless),
            (&*REWRITTEN.replace("SECOND", SECOND), Writer::Other),
            (&*REWRITTEN.replace("SECOND", "").replace("listless.dev", "minikube"), Writer::Other),
        ] {
            fs::write(&file, text).expect("written");
            assert_eq!(writer(), (expected, expected == Writer::Listless), "{text}");
        }
        assert!(!is_ours(directory.path()));
    }

    #[test]
    fn a_file_over_the_limit_is_not_searched_for_marked_entries() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("config");
        let text = REWRITTEN.replace("SECOND", "");
        for (size, expected) in
            [(FILE_BYTES_MAX, Writer::Listless), (FILE_BYTES_MAX + 1, Writer::Other)]
        {
            let comment = format!("#{}\n", "-".repeat(size - text.len() - 2));
            fs::write(&file, format!("{comment}{text}")).expect("written");
            assert_eq!(writer_of(&file).expect("readable"), expected, "{size}");
        }
    }

    #[test]
    fn each_cluster_is_marked_once() {
        let text = REWRITTEN.replace("SECOND", SECOND);
        let mut kubeconfig = Kubeconfig::from_yaml(&text).expect("a kubeconfig");
        mark_clusters(&mut kubeconfig);
        let marks = |named: &NamedCluster| {
            let cluster = named.cluster.as_ref().expect("a cluster");
            cluster.extensions.as_ref().map_or(0, Vec::len)
        };
        assert_eq!(kubeconfig.clusters.iter().map(marks).collect::<Vec<_>>(), [1, 1]);
        assert!(kubeconfig.clusters.iter().all(leads_to_listless));
    }

    #[test]
    fn the_entries_of_listless_are_split_off_a_file_of_others() {
        let text = REWRITTEN.replace("SECOND", SECOND);
        let mut others = Kubeconfig::from_yaml(&text).expect("a kubeconfig");
        let own = split_off_own(&mut others);
        let names = |kubeconfig: &Kubeconfig| {
            let clusters = kubeconfig.clusters.iter().map(|named| named.name.clone());
            let contexts = kubeconfig.contexts.iter().map(|named| named.name.clone());
            clusters.chain(contexts).chain(kubeconfig.current_context.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&own), ["listless", "prod", "prod"]);
        assert_eq!(names(&others), ["c", "staging"]);

        let text = text.replace("current-context: prod", "current-context: staging");
        let mut others = Kubeconfig::from_yaml(&text).expect("a kubeconfig");
        assert_eq!(split_off_own(&mut others).current_context, None);
        assert_eq!(others.current_context.as_deref(), Some("staging"));
    }
}
