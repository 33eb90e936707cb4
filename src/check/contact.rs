//! The webhook's certificate: the one its server shows, held against what the apiserver trusts; pure.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;

use super::{Row, webhook::Webhook};
use crate::tls;

/// What was learned of the certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contact {
    /// There is no webhook.
    NoWebhook,
    /// Its server showed a certificate that the bundle vouches for.
    Trusted {
        /// When it ends.
        until: Option<SystemTime>,
    },
    /// Its server showed another one.
    Refused(String),
    /// Its server cannot be reached from here, but its Secret can be read.
    Kept {
        /// Why it cannot be reached.
        why: String,
        /// Whether the bundle vouches for the certificate there.
        trusted: bool,
        /// When that ends.
        until: Option<SystemTime>,
    },
    /// Neither.
    Unreached(String),
}

/// A week is the life of a certificate, and it is replaced after half of it.
const LEAF_LEFT_MIN: Duration = Duration::from_secs(24 * 3600);
/// The authority is replaced after two thirds of its year.
const AUTHORITY_LEFT_MIN: Duration = Duration::from_secs(14 * 24 * 3600);

const NEGLECTED: &str = "the injector should have replaced it; look at its log";

/// Whether the apiserver can trust whom it asks.
pub fn certificate(webhook: Option<&Webhook>, contact: &Contact, now: SystemTime) -> Row {
    let name = "certificate";
    let Some(webhook) = webhook else { return Row::skipped(name, "no webhook is known", "") };
    let bundle = tls::certificates(webhook.bundle());
    let Some(authority_until) = bundle.iter().filter_map(tls::expires).max() else {
        let hint = "the injector writes it within ten seconds of its start; look at its log";
        return Row::fail(name, "the caBundle has no certificate", hint);
    };
    if authority_until <= now {
        let detail = format!("the caBundle ended at {}", moment(authority_until));
        return Row::fail(name, detail, NEGLECTED);
    }
    let until = match contact {
        Contact::NoWebhook => return Row::skipped(name, "no webhook is known", ""),
        Contact::Refused(why) => {
            let detail =
                format!("{} shows what the caBundle does not vouch for: {why}", webhook.place);
            return Row::fail(
                name,
                detail,
                "is something else at this address? else see the injector's log",
            );
        }
        Contact::Kept { trusted: false, .. } => {
            let detail = "the caBundle does not vouch for the certificate in the injector's Secret";
            return Row::fail(name, detail, "look at the injector's log");
        }
        Contact::Unreached(why) => {
            let detail = format!("{} cannot be reached from here: {why}", webhook.place);
            return Row::skipped(name, detail, "run it in the cluster: helm test does");
        }
        Contact::Trusted { until } | Contact::Kept { until, .. } => *until,
    };
    let Some(until) = until else {
        return Row::warn(name, "nobody can read when the certificate ends", NEGLECTED);
    };
    let seen = match contact {
        Contact::Kept { .. } => "in the injector's Secret",
        _ => "shown",
    };
    let detail = format!("the one {seen} is trusted, until {}", moment(until));
    if until <= now {
        return Row::fail(name, format!("the one {seen} ended at {}", moment(until)), NEGLECTED);
    }
    if until <= now + LEAF_LEFT_MIN {
        return Row::warn(name, detail, NEGLECTED);
    }
    if authority_until <= now + AUTHORITY_LEFT_MIN {
        let detail = format!("{detail}; the caBundle ends at {}", moment(authority_until));
        return Row::warn(name, detail, NEGLECTED);
    }
    Row::pass(name, detail)
}

fn moment(time: SystemTime) -> String {
    Timestamp::try_from(time)
        .map_or_else(|_| "a time nobody can read".to_owned(), |at| at.to_string())
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            Outcome,
            webhook::{Hook, Place},
        },
        *,
    };

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn webhook(bundle: &str) -> Webhook {
        let hook = Hook { name: String::new(), fails_closed: false, bundle: bundle.to_owned() };
        let place = Place::Url("https://injector".to_owned());
        Webhook { name: "ours".to_owned(), hooks: vec![hook], place, others: Vec::new() }
    }

    #[test]
    fn the_row_follows_from_who_vouches_for_what_and_for_how_long() {
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
        assert_eq!(judge(&fresh, late - DAY * 3), Outcome::Warn, "the authority ends soon");
        assert_eq!(judge(&fresh, late + DAY), Outcome::Fail, "the authority has ended");
    }

    #[test]
    fn without_a_webhook_there_is_nothing_to_trust_and_without_a_bundle_nobody() {
        let now = SystemTime::now();
        let trusted = Contact::Trusted { until: None };
        assert_eq!(certificate(None, &trusted, now).result, Outcome::Skipped);
        assert_eq!(certificate(Some(&webhook("")), &trusted, now).result, Outcome::Fail);
    }
}
