//! The renewal of the listener's certificate.

use super::*;

const DAY: Duration = Duration::from_secs(24 * 3600);

fn told(metrics: &Metrics) -> Option<u64> {
    let text = metrics.render();
    let mut ends = text.lines().filter_map(|line| {
        line.strip_prefix("listless_certificate_expiry_timestamp_seconds{certificate=\"serving\"} ")
    });
    ends.next()?.parse::<f64>().ok().map(|seconds| seconds as u64)
}

#[test]
fn the_certificate_is_renewed_a_month_before_it_expires() {
    let now = SystemTime::UNIX_EPOCH + DAY * 20_000;
    let names = tls::Names::of_apiserver(CLUSTER_DOMAIN);
    let authority = tls::Authority::generate_for(&names, now).unwrap();
    let metrics = Metrics::new();
    let mut serving = Serving::new(authority, names, metrics.clone(), now).unwrap();
    let first = serving.server.current();

    let before = now + tls::LEAF_LIFETIME - RENEWED_BEFORE_END - DAY;
    serving.renew(before).unwrap();
    assert!(Arc::ptr_eq(&first, &serving.server.current()), "renewed a day too early");

    let due = before + DAY;
    serving.renew(due).unwrap();
    let second = serving.server.current();
    assert!(!Arc::ptr_eq(&first, &second), "not renewed");
    let ends = due + tls::LEAF_LIFETIME;
    assert_eq!(
        told(&metrics),
        Some(ends.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs())
    );

    serving.renew(due + DAY).unwrap();
    assert!(Arc::ptr_eq(&second, &serving.server.current()), "renewed once more");

    // A process that was suspended for long does not show an expired one.
    serving.renew(due + tls::LEAF_LIFETIME * 2).unwrap();
    assert!(!Arc::ptr_eq(&second, &serving.server.current()), "an expired one is kept");
}
