//! The certificate of a listener, issued by Listless's own authority and renewed before its end.

use std::time::{Duration, SystemTime};

use crate::{
    error::Chain,
    lifecycle::Draining,
    metrics::{Certificate, Metrics},
    tls,
};

/// The remaining life at which the certificate is renewed.
const RENEWED_BEFORE_END: Duration = Duration::from_secs(30 * 24 * 3600);

/// The period at which the remaining life is checked.
const CHECK_PERIOD: Duration = Duration::from_secs(60);

/// A certificate and its authority.
pub(super) struct IssuedCertificate {
    authority: tls::Authority,
    names: tls::Names,
    server: tls::Server,
    metrics: Metrics,
    expires: SystemTime,
}

// === impl IssuedCertificate ===

impl IssuedCertificate {
    /// Issues the first certificate for a server of these names.
    pub(super) fn new(
        authority: tls::Authority,
        names: tls::Names,
        metrics: Metrics,
        now: SystemTime,
    ) -> Result<Self, tls::Error> {
        let server = tls::Server::new(authority.issue(&names, now)?)?;
        let expires = now + tls::LEAF_LIFETIME;
        if let Some((from, until)) = authority.validity() {
            metrics.certificate_valid(Certificate::Authority, from, until);
        }
        metrics.certificate_valid(Certificate::Serving, now, expires);
        Ok(Self { authority, names, server, metrics, expires })
    }

    /// Returns the listener's configuration, which changes at each renewal.
    pub(super) fn server(&self) -> tls::Server {
        self.server.clone()
    }

    /// Returns the certificate of the authority, which clients trust.
    pub(super) fn authority_pem(&self) -> &str {
        self.authority.pem()
    }

    /// Renews the certificate until the process drains.
    pub(super) async fn follow(mut self, draining: Draining) {
        let renew = || {
            if let Err(error) = self.renew(SystemTime::now()) {
                let error = Chain(&error);
                tracing::error!(%error, "cannot renew the listener's certificate");
            }
        };
        draining.act_every(CHECK_PERIOD, renew).await;
    }

    /// Issues the next certificate before the current one expires.
    fn renew(&mut self, now: SystemTime) -> Result<(), tls::Error> {
        if self.expires.duration_since(now).is_ok_and(|left| left > RENEWED_BEFORE_END) {
            return Ok(());
        }
        self.server.replace(self.authority.issue(&self.names, now)?)?;
        self.expires = now + tls::LEAF_LIFETIME;
        self.metrics.certificate_valid(Certificate::Serving, now, self.expires);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::lifecycle::Drain;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn issued(metrics: &Metrics, now: SystemTime) -> IssuedCertificate {
        let names = tls::Names::of_apiserver("cluster.local");
        let authority = tls::Authority::generate_for(&names, now).expect("an authority");
        IssuedCertificate::new(authority, names, metrics.clone(), now).expect("a certificate")
    }

    fn end_of(certificate: &str, metrics: &Metrics) -> Option<u64> {
        let name = "listless_certificate_expiry_timestamp_seconds";
        let start = format!("{name}{{certificate=\"{certificate}\"}} ");
        let text = metrics.render();
        let end = text.lines().find_map(|line| line.strip_prefix(&start))?;
        end.parse::<f64>().ok().map(|seconds| seconds as u64)
    }

    fn seconds(at: SystemTime) -> Option<u64> {
        at.duration_since(SystemTime::UNIX_EPOCH).ok().map(|since| since.as_secs())
    }

    #[test]
    fn the_certificate_is_renewed_a_month_before_it_expires() {
        let now = SystemTime::UNIX_EPOCH + DAY * 20_000;
        let metrics = Metrics::new();
        let mut issued = issued(&metrics, now);
        let first = issued.server.current();

        let before = now + tls::LEAF_LIFETIME - RENEWED_BEFORE_END - DAY;
        issued.renew(before).expect("checked");
        assert!(Arc::ptr_eq(&first, &issued.server.current()), "renewed a day too early");

        let due = before + DAY;
        issued.renew(due).expect("renewed");
        let second = issued.server.current();
        assert!(!Arc::ptr_eq(&first, &second), "not renewed");
        assert_eq!(end_of("serving", &metrics), seconds(due + tls::LEAF_LIFETIME));

        issued.renew(due + DAY).expect("checked");
        assert!(Arc::ptr_eq(&second, &issued.server.current()), "renewed once more");

        // A process that was suspended for long does not show an expired one.
        issued.renew(due + tls::LEAF_LIFETIME * 2).expect("renewed");
        assert!(!Arc::ptr_eq(&second, &issued.server.current()), "an expired one is kept");
    }

    #[test]
    fn a_stored_authority_is_reported_with_its_own_end() {
        let made = SystemTime::UNIX_EPOCH + DAY * 20_000;
        let now = made + DAY * 1_000;
        let metrics = Metrics::new();
        let names = tls::Names::of_apiserver("cluster.local");
        let authority = tls::Authority::generate_for(&names, made).expect("an authority");
        let issued = IssuedCertificate::new(authority, names, metrics.clone(), now);
        drop(issued.expect("a certificate"));
        assert_eq!(end_of("authority", &metrics), seconds(made + tls::CA_LIFETIME));
    }

    #[tokio::test(start_paused = true)]
    async fn an_expired_certificate_is_renewed_while_serving() {
        let metrics = Metrics::new();
        let issued = issued(&metrics, SystemTime::now() - tls::LEAF_LIFETIME);
        let (server, drain) = (issued.server(), Drain::new());
        let first = server.current();
        let following = tokio::spawn(issued.follow(drain.watch()));
        crate::testing::pass(CHECK_PERIOD).await;
        assert!(!Arc::ptr_eq(&first, &server.current()), "not renewed");
        drain.begin(tokio::time::Instant::now());
        following.await.expect("no panic");
    }
}
