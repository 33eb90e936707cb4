//! The check of the webhook's certificate against the bundle that the apiserver trusts. Pure.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;

use super::{Row, webhook::Webhook};
use crate::tls;

/// The facts about the certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contact {
    /// There is no webhook.
    NoWebhook,
    /// The server's certificate is trusted by the bundle.
    Trusted {
        /// The end of its validity.
        until: Option<SystemTime>,
    },
    /// The server's certificate is not trusted by the bundle.
    Refused(String),
    /// The server is not reachable from here, but its Secret is readable.
    Kept {
        /// The reason why it is not reachable.
        why: String,
        /// `true` if the bundle trusts the certificate in the Secret.
        trusted: bool,
        /// The end of its validity.
        until: Option<SystemTime>,
    },
    /// Neither the server nor the Secret is readable.
    Unreached(String),
}

/// The minimum remaining life of a certificate. It is valid for a week and replaced after half of
/// it.
const LEAF_LEFT_MIN: Duration = Duration::from_secs(24 * 3600);
/// The minimum remaining life of the authority. It is replaced after two thirds of its year.
const AUTHORITY_LEFT_MIN: Duration = Duration::from_secs(14 * 24 * 3600);

const NEGLECTED: &str = "the injector should have replaced it; see its log";

/// Checks that the apiserver can trust the webhook's server.
pub fn certificate(webhook: Option<&Webhook>, contact: &Contact, now: SystemTime) -> Row {
    let name = "certificate";
    let Some(webhook) = webhook else { return Row::skipped(name, "there is no known webhook", "") };
    let bundle = tls::certificates(webhook.bundle());
    let Some(authority_until) = bundle.iter().filter_map(tls::expires).max() else {
        let hint = "the injector writes it within ten seconds of its start; see its log";
        return Row::fail(name, "the caBundle has no certificate", hint);
    };
    if authority_until <= now {
        let detail = format!("the caBundle expired at {}", moment(authority_until));
        return Row::fail(name, detail, NEGLECTED);
    }
    let until = match contact {
        Contact::NoWebhook => return Row::skipped(name, "there is no known webhook", ""),
        Contact::Refused(why) => {
            let detail = format!(
                "{} shows a certificate that the caBundle does not trust: {why}",
                webhook.place
            );
            return Row::fail(
                name,
                detail,
                "check that the injector listens at this address; see its log",
            );
        }
        Contact::Kept { trusted: false, .. } => {
            let detail = "the caBundle does not trust the certificate in the injector's Secret";
            return Row::fail(name, detail, "see the injector's log");
        }
        Contact::Unreached(why) => {
            let detail = format!("{} is not reachable from here: {why}", webhook.place);
            return Row::skipped(name, detail, "run the check in the cluster, as helm test does");
        }
        Contact::Trusted { until } | Contact::Kept { until, .. } => *until,
    };
    let Some(until) = until else {
        return Row::warn(name, "cannot read the expiry time of the certificate", NEGLECTED);
    };
    let seen = match contact {
        Contact::Kept { .. } => "in the injector's Secret",
        _ => "shown",
    };
    let detail = format!("the certificate {seen} is trusted, until {}", moment(until));
    if until <= now {
        return Row::fail(
            name,
            format!("the certificate {seen} expired at {}", moment(until)),
            NEGLECTED,
        );
    }
    if until <= now + LEAF_LEFT_MIN {
        return Row::warn(name, detail, NEGLECTED);
    }
    if authority_until <= now + AUTHORITY_LEFT_MIN {
        let detail = format!("{detail}; the caBundle expires at {}", moment(authority_until));
        return Row::warn(name, detail, NEGLECTED);
    }
    Row::pass(name, detail)
}

fn moment(time: SystemTime) -> String {
    Timestamp::try_from(time).map_or_else(|_| "an unreadable time".to_owned(), |at| at.to_string())
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            Outcome,
            webhook::{Hook, WebhookAddress},
        },
        *,
    };

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn webhook(bundle: &str) -> Webhook {
        let hook = Hook { name: String::new(), fails_closed: false, bundle: bundle.to_owned() };
        let place = WebhookAddress::Url("https://injector".to_owned());
        Webhook { name: "ours".to_owned(), hooks: vec![hook], place, others: Vec::new() }
    }

    #[test]
    fn the_result_follows_from_trust_and_remaining_life() {
        let made = SystemTime::now();
        let authority = tls::Authority::generate(made).expect("an authority");
        let webhook = webhook(authority.pem());
        let judge = |contact: &Contact, now| certificate(Some(&webhook), contact, now).result;
        let until = |days| Contact::Trusted { until: Some(made + DAY * days) };
        let kept = |trusted| {
            let why = String::new();
            Contact::Kept { why, trusted, until: Some(made + DAY * 5) }
        };
        for (contact, expected) in [
            (until(5), Outcome::Pass),
            (until(0), Outcome::Fail),
            (Contact::Trusted { until: Some(made + DAY / 2) }, Outcome::Warn),
            (Contact::Trusted { until: None }, Outcome::Warn),
            (Contact::Refused("another name".to_owned()), Outcome::Fail),
            (Contact::Unreached("no route".to_owned()), Outcome::Skipped),
            (kept(true), Outcome::Pass),
            (kept(false), Outcome::Fail),
            (Contact::NoWebhook, Outcome::Skipped),
        ] {
            assert_eq!(judge(&contact, made), expected, "{contact:?}");
        }
        let late = made + tls::CA_LIFETIME;
        let fresh = Contact::Trusted { until: Some(late + DAY * 5) };
        assert_eq!(judge(&fresh, late - DAY * 3), Outcome::Warn, "the authority expires soon");
        assert_eq!(judge(&fresh, late + DAY), Outcome::Fail, "the authority has expired");
    }

    #[test]
    fn without_a_webhook_the_check_is_skipped_and_without_a_bundle_it_fails() {
        let now = SystemTime::now();
        let trusted = Contact::Trusted { until: None };
        assert_eq!(certificate(None, &trusted, now).result, Outcome::Skipped);
        assert_eq!(certificate(Some(&webhook("")), &trusted, now).result, Outcome::Fail);
    }
}
