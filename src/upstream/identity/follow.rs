//! The meaning of a kubeconfig, followed while its files change: the context, its cluster, its
//! user.
//!
//! Only changes that matter to a client count. Tokens that an old auth provider keeps writing into
//! the file do not: they are the same user's.

use std::{
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use kube::config::{AuthInfo, Kubeconfig};

use super::{
    Error,
    kubeconfig::{checked_context, files, places, read},
};

/// The served context, and the files it was read from.
pub struct Followed {
    path: Option<PathBuf>,
    asked: Option<String>,
    files: Vec<PathBuf>,
    stamps: Vec<Option<Stamp>>,
    served: Meaning,
    latest: Meaning,
}

/// A change of the files' meaning since the last check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Another context is the current one.
    Elsewhere(String),
    /// The cluster or the user of the served context has changed.
    Changed,
    /// The served context is current again.
    Back,
}

/// The properties that change when a file is written or replaced.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
}

#[derive(Clone, PartialEq)]
struct Meaning {
    context: String,
    /// The cluster, as JSON, which can be compared.
    cluster: Option<serde_json::Value>,
    /// The user, as JSON; never shown, because it contains secrets.
    user: Option<serde_json::Value>,
}

// === impl Followed ===

impl Followed {
    /// Notes the current meaning of the files; `path` and `asked` are as for reading them.
    pub fn begin(path: Option<&Path>, asked: Option<&str>) -> Result<Self, Error> {
        let files = places(path)?;
        let stamps = stamps(&files);
        let (path, asked) = (path.map(Path::to_owned), asked.map(str::to_owned));
        let served = Meaning::read(path.as_deref(), asked.as_deref())?;
        Ok(Self { path, asked, files, stamps, latest: served.clone(), served })
    }

    /// Checks the files, and reads them if they have changed.
    pub fn look(&mut self) -> Result<Option<Turn>, Error> {
        let stamps = stamps(&self.files);
        if stamps == self.stamps {
            return Ok(None);
        }
        self.stamps = stamps;
        let now = Meaning::read(self.path.as_deref(), self.asked.as_deref())?;
        if now == self.latest {
            return Ok(None);
        }
        self.latest = now;
        Ok(Some(if self.latest == self.served {
            Turn::Back
        } else if self.latest.context == self.served.context {
            Turn::Changed
        } else {
            Turn::Elsewhere(self.latest.context.clone())
        }))
    }

    /// Returns the served context.
    pub fn context(&self) -> &str {
        &self.served.context
    }
}

// === impl Meaning ===

impl Meaning {
    fn read(path: Option<&Path>, asked: Option<&str>) -> Result<Self, Error> {
        let names = files(path);
        let kubeconfig = read(path, &names)?;
        let (context, ..) = checked_context(&kubeconfig, asked, &names)?;
        Ok(Self::of(kubeconfig, context))
    }

    fn of(kubeconfig: Kubeconfig, context: String) -> Self {
        let found = kubeconfig.contexts.into_iter().find(|named| named.name == context);
        let found = found.and_then(|named| named.context).unwrap_or_default();
        let mut clusters = kubeconfig.clusters.into_iter();
        let cluster = clusters.find(|named| named.name == found.cluster);
        let mut users = kubeconfig.auth_infos.into_iter();
        let user = users.find(|named| Some(&named.name) == found.user.as_ref());
        Self {
            context,
            cluster: cluster.and_then(|named| serde_json::to_value(named.cluster?).ok()),
            user: user.and_then(|named| named.auth_info).and_then(lasting),
        }
    }
}

/// Returns a user without the fields that are written repeatedly.
fn lasting(mut user: AuthInfo) -> Option<serde_json::Value> {
    if let Some(provider) = &mut user.auth_provider {
        provider.config.clear();
    }
    serde_json::to_value(user).ok()
}

fn stamps(files: &[PathBuf]) -> Vec<Option<Stamp>> {
    let stamp = |file: &PathBuf| {
        let metadata = fs::metadata(file).ok()?;
        Some(Stamp { modified: metadata.modified().ok(), length: metadata.len() })
    };
    files.iter().map(stamp).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KUBECONFIG: &str = r#"
clusters:
- {name: c, cluster: {server: "https://10.0.0.1:6443"}}
- {name: d, cluster: {server: "https://10.0.0.2:6443"}}
users:
- {name: u, user: {token: one, auth-provider: {name: p, config: {access-token: a}}}}
contexts:
- {name: prod, context: {cluster: c, user: u}}
- {name: test, context: {cluster: d, user: u}}
current-context: prod
"#;

    struct File {
        path: PathBuf,
        _directory: tempfile::TempDir,
        written: u64,
    }

    impl File {
        fn new() -> Self {
            let directory = tempfile::tempdir().expect("a directory");
            let path = directory.path().join("config");
            let mut file = Self { path, _directory: directory, written: 0 };
            file.write(KUBECONFIG);
            file
        }

        /// Writes content of a new length each time: the clocks of file systems are coarse.
        fn write(&mut self, text: &str) {
            self.written += 1;
            let blank = "\n".repeat(usize::try_from(self.written).expect("few"));
            fs::write(&self.path, format!("{text}{blank}")).expect("written");
        }

        fn follow(&self, asked: Option<&str>) -> Followed {
            Followed::begin(Some(&self.path), asked).expect("a context")
        }
    }

    #[test]
    fn a_changed_current_context_is_reported_once_each_way() {
        let mut file = File::new();
        let mut followed = file.follow(None);
        assert_eq!((followed.look().unwrap(), followed.context()), (None, "prod"));
        file.write(&KUBECONFIG.replace("current-context: prod", "current-context: test"));
        assert_eq!(followed.look().unwrap(), Some(Turn::Elsewhere("test".to_owned())));
        assert_eq!(followed.look().unwrap(), None);
        file.write(KUBECONFIG);
        assert_eq!(followed.look().unwrap(), Some(Turn::Back));
    }

    #[test]
    fn a_requested_context_stays_and_its_entries_may_change() {
        let mut file = File::new();
        let mut followed = file.follow(Some("prod"));
        file.write(&KUBECONFIG.replace("current-context: prod", "current-context: test"));
        assert_eq!(followed.look().unwrap(), None);
        file.write(&KUBECONFIG.replace("10.0.0.1", "10.0.0.9"));
        assert_eq!(followed.look().unwrap(), Some(Turn::Changed));
        file.write(&KUBECONFIG.replace("10.0.0.1", "10.0.0.9").replace("token: one", "token: two"));
        assert_eq!(followed.look().unwrap(), Some(Turn::Changed));
    }

    #[test]
    fn an_equal_meaning_is_no_change() {
        let mut file = File::new();
        let mut followed = file.follow(None);
        file.write(&KUBECONFIG.replace("access-token: a", "access-token: b"));
        assert_eq!(followed.look().unwrap(), None, "an old auth provider's token");
        file.write(&KUBECONFIG.replace("10.0.0.2", "10.0.0.3"));
        assert_eq!(followed.look().unwrap(), None, "another context's cluster");
    }

    #[test]
    fn unreadable_files_are_an_error_and_change_nothing() {
        let mut file = File::new();
        let mut followed = file.follow(None);
        file.write("clusters: [");
        assert!(followed.look().is_err());
        assert_eq!(followed.look().unwrap(), None, "told once");
        file.write(&KUBECONFIG.replace("current-context: prod", "current-context: gone"));
        assert!(followed.look().is_err());
        file.write(KUBECONFIG);
        assert_eq!(followed.look().unwrap(), None, "as it was");
    }
}
