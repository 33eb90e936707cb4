//! A certificate and its key in files, which are reloaded when they change.
//!
//! Invariant: a pair that cannot be used, such as a new certificate with an old key, changes only
//! the log and a metric. It is checked again when either file changes.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use super::{Error, Leaf, Server};
use crate::{
    error::Chain,
    lifecycle::Draining,
    metrics::{Certificate, Metrics, Outcome},
};

/// Two files and the server of their content.
pub struct Files {
    certificate: PathBuf,
    key: PathBuf,
    server: Server,
    /// The first and the last moment at which the current certificate is valid, if readable.
    validity: Option<(SystemTime, SystemTime)>,
    /// The last tried content, whether used or not. Empty for an unreadable file.
    seen: Content,
}

type Content = [Option<Vec<u8>>; 2];

/// The result of a check of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// They are unchanged.
    Same,
    /// Their content is served from now on.
    Taken,
    /// They are not usable; the earlier content is still served.
    Refused,
}

/// The period of checks. A kubelet takes about a minute to update files.
const PERIOD: Duration = Duration::from_secs(5);

// === impl Files ===

impl Files {
    /// Reads both files for the first time, when they must be usable.
    pub fn load(certificate: PathBuf, key: PathBuf) -> Result<Self, Error> {
        // Before they are used: a replacement meanwhile must be noticed.
        let seen = content(&certificate, &key);
        let leaf = Leaf::load(&certificate, &key)?;
        let validity = leaf.validity();
        let server = Server::new(leaf)?;
        Ok(Self { certificate, key, server, validity, seen })
    }

    /// Returns the server of the files' present and later content.
    pub fn server(&self) -> Server {
        self.server.clone()
    }

    /// Checks the files every few seconds until the drain begins.
    pub async fn follow(mut self, draining: Draining, metrics: Metrics) {
        self.tell_expiry(&metrics);
        let check = || match self.look() {
            Look::Same => {}
            Look::Taken => {
                metrics.certificate_reloaded(Outcome::Success);
                self.tell_expiry(&metrics);
            }
            Look::Refused => metrics.certificate_reloaded(Outcome::Failure),
        };
        draining.act_every(PERIOD, check).await;
    }

    fn look(&mut self) -> Look {
        let content = content(&self.certificate, &self.key);
        if content == self.seen {
            return Look::Same;
        }
        self.seen = content;
        match self.take() {
            Ok(()) => {
                tracing::info!(certificate = %self.certificate.display(), "certificate replaced");
                Look::Taken
            }
            Err(error) => {
                let error = Chain(&error);
                tracing::error!(%error, "cannot use the new certificate; still serving the old one");
                Look::Refused
            }
        }
    }

    fn take(&mut self) -> Result<(), Error> {
        let leaf = Leaf::load(&self.certificate, &self.key)?;
        let validity = leaf.validity();
        self.server.replace(leaf)?;
        self.validity = validity;
        Ok(())
    }

    fn tell_expiry(&self, metrics: &Metrics) {
        if let Some((from, until)) = self.validity {
            metrics.certificate_valid(Certificate::Serving, from, until);
        }
    }
}

fn content(certificate: &Path, key: &Path) -> Content {
    [fs::read(certificate).ok(), fs::read(key).ok()]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    /// The metric of a certificate that expires at the end of 2030.
    const EXPIRY: &str =
        "listless_certificate_expiry_timestamp_seconds{certificate=\"serving\"} 1924905600";

    /// Returns a certificate and its key in PEM.
    fn pair() -> [String; 2] {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec!["gateway".to_owned()]).expect("a name");
        params.not_after = rcgen::date_time_ymd(2030, 12, 31);
        let certificate = params.self_signed(&key).expect("a certificate");
        [certificate.pem(), key.serialize_pem()]
    }

    #[test]
    fn a_valid_replacement_is_served_and_a_broken_one_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let [certificate, key] = ["tls.crt", "tls.key"].map(|name| directory.path().join(name));
        let write = |file: &PathBuf, text: &str| fs::write(file, text).expect("written");
        let (first, second) = (pair(), pair());
        write(&certificate, &first[0]);
        assert!(Files::load(certificate.clone(), key.clone()).is_err(), "there is no key");
        write(&key, &first[1]);
        let mut files = Files::load(certificate.clone(), key.clone()).expect("usable files");
        let server = files.server();
        let at_first = server.current();
        assert_eq!(files.look(), Look::Same);

        write(&certificate, &second[0]);
        assert_eq!(files.look(), Look::Refused, "the key is another's");
        assert_eq!(files.look(), Look::Same, "and it is logged once");
        assert!(Arc::ptr_eq(&server.current(), &at_first));
        write(&key, &second[1]);
        assert_eq!(files.look(), Look::Taken);
        assert!(!Arc::ptr_eq(&server.current(), &at_first));

        let at_second = server.current();
        write(&certificate, "nonsense");
        assert_eq!(files.look(), Look::Refused);
        fs::remove_file(&key).expect("removed");
        assert_eq!(files.look(), Look::Refused);
        assert!(Arc::ptr_eq(&server.current(), &at_second));
    }

    #[tokio::test(start_paused = true)]
    async fn the_files_are_followed_until_the_drain_begins() {
        let directory = tempfile::tempdir().expect("a directory");
        let [certificate, key] = ["tls.crt", "tls.key"].map(|name| directory.path().join(name));
        let replace = || {
            let [new_certificate, new_key] = pair();
            fs::write(&certificate, new_certificate).expect("written");
            fs::write(&key, new_key).expect("written");
        };
        replace();
        let files = Files::load(certificate.clone(), key.clone()).expect("usable files");
        let server = files.server();
        let (drain, metrics) = (crate::lifecycle::Drain::new(), Metrics::new());
        let following = tokio::spawn(files.follow(drain.watch(), metrics.clone()));
        for _ in 0..3 {
            let before = server.current();
            replace();
            crate::testing::pass(PERIOD + Duration::from_secs(1)).await;
            assert!(!Arc::ptr_eq(&server.current(), &before));
        }
        assert!(metrics.render().contains(EXPIRY), "the certificate's expiry time is reported");
        drain.begin(tokio::time::Instant::now());
        following.await.expect("no panic");
    }
}
