//! Kubeconfig files: which are read, and which context applies.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use kube::config::{Kubeconfig, KubeconfigError};

use super::{Error, fault, mark};
use crate::api::url;

/// Reads a file, or merges those that `KUBECONFIG` names: as kubectl does, without missing ones,
/// unless all are. Files that Listless wrote are not read. Entries of Listless in other files hide
/// none of a cluster.
pub(super) fn read(path: Option<&Path>, files: &str) -> Result<Kubeconfig, Error> {
    let (mut merged, mut missing) = (None::<Kubeconfig>, None);
    let mut own = Kubeconfig::default();
    for file in places(path)? {
        let unreadable = |error| unreadable(&file.display().to_string(), error);
        match Kubeconfig::read_from(&file) {
            Err(KubeconfigError::ReadConfig(error, _))
                if error.kind() == std::io::ErrorKind::NotFound =>
            {
                missing = missing.or(Some((file, error)));
            }
            Err(error) => return Err(unreadable(error)),
            Ok(mut next) => {
                // kube's merge takes an empty text for a context; kubectl does not.
                next.current_context = next.current_context.filter(|name| !name.is_empty());
                own = own.merge(mark::split_off_own(&mut next)).map_err(unreadable)?;
                merged = Some(match merged.take() {
                    Some(merged) => merged.merge(next).map_err(unreadable)?,
                    None => next,
                });
            }
        }
    }
    match (merged, missing) {
        (Some(merged), _) => merged.merge(own).map_err(|error| unreadable(files, error)),
        (None, Some((file, source))) => {
            let file = file.display().to_string();
            let (file, advice) = match (path, named()) {
                (Some(_), _) => (file, "; correct --kubeconfig"),
                (None, Some(_)) => (file, "; correct KUBECONFIG"),
                (None, None) => (files.to_owned(), "; pass --kubeconfig or set KUBECONFIG"),
            };
            Err(Error::NoKubeconfig { file, advice, source })
        }
        // There is no home directory.
        (None, None) => Err(unreadable(files, KubeconfigError::FindPath)),
    }
}

pub(super) fn unreadable(files: &str, error: KubeconfigError) -> Error {
    let files = files.to_owned();
    match error {
        // The error's own text repeats the path.
        KubeconfigError::ReadConfig(source, _) => {
            Error::NoKubeconfig { file: files, advice: "", source }
        }
        error => Error::Kubeconfig { files, text: fault::of_kubeconfig(&error) },
    }
}

/// Returns the files that a kubeconfig is read from. Files that Listless wrote are not among them,
/// because Listless would be its own apiserver.
pub fn places(path: Option<&Path>) -> Result<Vec<PathBuf>, Error> {
    let file = match (path, named()) {
        (Some(path), _) => Some(path.to_owned()),
        (None, Some(files)) => return Ok(std::env::split_paths(&files).collect()),
        (None, None) => std::env::home_dir().map(|home| home.join(".kube/config")),
    };
    match file {
        Some(file) if mark::is_ours(&file) => Err(Error::OwnKubeconfig(file)),
        file => Ok(file.into_iter().collect()),
    }
}

/// Returns the list in `KUBECONFIG` without files that Listless wrote; `None` if no file is left.
pub(super) fn named() -> Option<OsString> {
    let files = std::env::var_os("KUBECONFIG")?;
    let others = std::env::split_paths(&files)
        .filter(|file| !file.as_os_str().is_empty() && !mark::is_ours(file));
    // A part of a split list can always be joined again.
    std::env::join_paths(others).ok().filter(|files| !files.is_empty())
}

pub(super) fn files(path: Option<&Path>) -> String {
    match (path, named()) {
        (Some(path), _) => path.display().to_string(),
        (None, Some(files)) => files.to_string_lossy().into_owned(),
        (None, None) => "~/.kube/config".to_owned(),
    }
}

/// Returns the context, whether its cluster names a proxy itself, and its authority's file.
pub(super) fn checked_context(
    kubeconfig: &Kubeconfig,
    asked: Option<&str>,
    files: &str,
) -> Result<(String, bool, Option<PathBuf>), Error> {
    let files = files.to_owned();
    let names: Vec<_> = kubeconfig.contexts.iter().map(|context| context.name.as_str()).collect();
    let available = match &*names {
        [] => "no contexts".to_owned(),
        [name] => format!("the context {name}"),
        names => format!("the contexts {}", names.join(", ")),
    };
    let Some(name) = asked.or(kubeconfig.current_context.as_deref()) else {
        let available = format!("has {available}");
        return Err(Error::NoCurrentContext { files, available });
    };
    let found = kubeconfig.contexts.iter().find(|context| context.name == name);
    let Some(context) = found.and_then(|found| found.context.as_ref()) else {
        return Err(Error::NoSuchContext { files, context: name.to_owned(), available });
    };
    let dangling = |kind, missing: &str| Error::Dangling {
        files: files.clone(),
        context: name.to_owned(),
        kind,
        name: missing.to_owned(),
    };
    let cluster = kubeconfig.clusters.iter().find(|cluster| cluster.name == context.cluster);
    let Some(cluster) = cluster else { return Err(dangling("cluster", &context.cluster)) };
    if mark::leads_to_listless(cluster) {
        return Err(Error::OwnContext { files: files.clone(), context: name.to_owned() });
    }
    let unusable = |source| Error::Cluster {
        origin: format!("context {name:?} of kubeconfig {files}"),
        source,
    };
    let cluster = cluster.cluster.as_ref();
    let server = cluster.and_then(|cluster| Some((cluster, cluster.server.as_deref()?)));
    let Some((cluster, server)) = server else {
        return Err(unusable(format!("cluster {:?} has no server", context.cluster).into()));
    };
    url::parse(server).map_err(|error| unusable(error.into()))?;
    if let Some(user) = context.user.as_deref().filter(|user| !user.is_empty())
        && !kubeconfig.auth_infos.iter().any(|known| known.name == user)
    {
        return Err(dangling("user", user));
    }
    let explicit_proxy = cluster.proxy_url.as_deref().is_some_and(|url| !url.is_empty());
    let has_data = cluster.certificate_authority_data.as_ref().is_some_and(|data| !data.is_empty());
    let authority =
        cluster.certificate_authority.as_ref().filter(|file| !file.is_empty() && !has_data);
    Ok((name.to_owned(), explicit_proxy, authority.map(PathBuf::from)))
}
