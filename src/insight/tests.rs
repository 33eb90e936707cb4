//! Accounts: their counts, their memory and their limits.

use http::{HeaderValue, Method, Uri};

use super::{
    account::{Answer, Otherwise, Pace},
    cost::Encoding,
    *,
};
use crate::api::request::NotModelled;

struct Setup {
    insight: Insight,
    start: Instant,
}

/// The milliseconds that no longer fit into 32 bits.
const SEVEN_WEEKS: u64 = 1 << 32;

fn setup() -> Setup {
    let start = Instant::now();
    Setup { insight: Insight::new(Metrics::new(), start), start }
}

fn agent(name: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::USER_AGENT, HeaderValue::from_str(name).unwrap());
    headers
}

fn record(started: Instant) -> Record {
    Record {
        started,
        took: Duration::from_millis(1),
        answer: Answer::Memory,
        code: 200,
        bytes: 1000,
        content: None,
        encoding: Encoding::default(),
        collection: None,
        retry_after: None,
        pace: Pace::Free,
        otherwise: Otherwise::Same,
    }
}

impl Setup {
    fn asker(&self, target: &str, headers: &HeaderMap, at: Instant) -> Asker {
        let uri: Uri = target.parse().unwrap();
        let info = RequestInfo::parse(&Method::GET, &uri, headers);
        self.insight.asker(&AccountRequest { info: &info, text: target, headers, caller: "" }, at)
    }

    fn ask(&self, target: &str, headers: &HeaderMap, record: Record) {
        let asker = self.asker(target, headers, record.started);
        self.insight.record(&asker, 1, &record);
    }

    fn report(&self, seconds: f64) -> Report {
        self.insight.report("enforce", self.start + Duration::from_secs_f64(seconds))
    }
}

#[test]
fn similar_requests_are_counted_together() {
    let setup = setup();
    for number in 0..10 {
        let target = format!("/api/v1/namespaces/n{number}/pods?labelSelector=app%3Da{number}");
        setup.ask(&target, &agent("shop"), record(setup.start));
    }
    setup.ask("/api/v1/namespaces/a/pods", &agent("shop"), record(setup.start));
    setup.ask("/api/v1/namespaces/a/pods", &agent("other"), record(setup.start));
    let requests: Vec<u64> = setup.report(1.0).polls.iter().map(|poll| poll.requests).collect();
    assert_eq!(requests, [10, 1, 1]);
    assert_eq!(setup.report(1.0).totals.requests, 12);
}

#[test]
fn answers_and_reasons_are_counted_separately() {
    let setup = setup();
    let answers = [
        (Answer::Memory, 200),
        (Answer::Memory, 200),
        (Answer::Shared("most-recent"), 200),
        (Answer::Upstream("not-demanded"), 200),
        (Answer::Own("saturated"), 503),
        (Answer::Own("paced"), 429),
        (Answer::Own("request-body"), 400),
    ];
    for (answer, code) in answers {
        setup.ask("/api/v1/pods", &agent("shop"), Record { answer, code, ..record(setup.start) });
    }
    let report = setup.report(1.0);
    let poll = &report.polls[0];
    let answers = poll.answers;
    assert_eq!((answers.cache, answers.coalesced, answers.upstream, answers.proxy), (2, 1, 1, 3));
    assert_eq!(poll.reasons["not-demanded"], 1);
    assert_eq!((poll.saved.requests, poll.saved.bytes), (3, 3000));
    assert_eq!((report.totals.refused, report.totals.failed), (2, 1));
}

#[test]
fn listless_own_requests_are_deducted_from_the_savings() {
    let setup = setup();
    for _ in 0..10 {
        setup.ask("/api/v1/pods", &agent("shop"), record(setup.start));
    }
    let forwarded = Record { answer: Answer::Upstream("not-demanded"), ..record(setup.start) };
    setup.ask("/api/v1/pods", &agent("shop"), forwarded);
    setup.insight.passed_on();
    (0..3).for_each(|_| setup.insight.sent());
    for (origin, bytes) in
        [(Origin::Replica, 3000), (Origin::Review, 600), (Origin::Discovery, 400)]
    {
        setup.insight.received(origin, bytes);
    }
    setup.insight.received(Origin::Client, 4000);
    let totals = setup.report(1.0).totals;
    assert_eq!((totals.upstream_requests, totals.forwarded), (3, 1));
    assert_eq!((totals.saved_requests, totals.saved_bytes), (10 - 2, 10_000 - 4000));
}

#[test]
fn a_response_with_the_content_of_the_last_one_is_unchanged() {
    let setup = setup();
    for content in [1, 1, 1, 2, 2] {
        let record = Record { content: Some(content), ..record(setup.start) };
        setup.ask("/api/v1/pods", &agent("shop"), record);
        // Another selection has other content.
        let other = Record { content: Some(content + 9), ..record };
        setup.ask("/api/v1/namespaces/a/pods/b", &agent("shop"), other);
    }
    assert_eq!(setup.report(1.0).polls[0].unchanged_share, Some(0.75));
}

#[test]
fn a_target_remembers_its_asker_and_looks_up_another() {
    let setup = setup();
    let remembered = Remembered::default();
    let caller = Arc::<str>::from("shop/web");
    let found = |name: &str, caller, made: &mut u32| {
        let headers = agent(name);
        remembered.of(&headers, caller, || {
            *made += 1;
            setup.asker("/api/v1/pods", &headers, setup.start)
        })
    };
    let mut made = 0;
    for name in ["a", "a", "a", "b", "b"] {
        assert_eq!(&*found(name, None, &mut made).account.shape.user_agent, name);
    }
    assert_eq!(made, 2);
    found("b", Some(&caller), &mut made);
    found("b", Some(&caller), &mut made);
    assert_eq!(made, 3, "the caller's name has become known");
}

#[test]
fn a_closed_account_is_opened_again() {
    let setup = setup();
    let headers = agent("shop");
    let remembered = Remembered::default();
    let asker = |at| remembered.of(&headers, None, || setup.asker("/api/v1/pods", &headers, at));
    setup.insight.record(&asker(setup.start), 1, &record(setup.start));
    let later = setup.start + Duration::from_secs(3600);
    for number in 0..=ACCOUNTS_MAX {
        let record = record(later);
        setup.ask("/api/v1/pods", &agent(&format!("agent-{number}")), record);
    }
    let told = |report: &Report| report.polls.iter().any(|poll| poll.user_agent == "shop");
    assert!(!told(&setup.report(3600.0)), "it was idle for an hour after one request");
    let much_later = later + Duration::from_secs(3600);
    setup.insight.record(&asker(much_later), 1, &record(much_later));
    let report = setup.report(7200.0);
    assert!(told(&report));
    assert_eq!(report.totals.requests, ACCOUNTS_MAX as u64 + 3);
}

#[test]
fn idle_accounts_make_room_after_seven_weeks() {
    let setup = setup();
    let before = setup.start + Duration::from_millis(SEVEN_WEEKS - 1000);
    for number in 0..=ACCOUNTS_MAX {
        setup.ask("/api/v1/pods", &agent(&format!("agent-{number}")), record(before));
    }
    assert_eq!(setup.insight.accounts(), ACCOUNTS_MAX);
    let after = before + Duration::from_secs(3600);
    setup.ask("/api/v1/pods", &agent("shop"), record(after));
    assert_eq!(setup.insight.accounts(), 1, "all others were idle for an hour");
}

#[test]
fn the_reported_rate_is_right_after_seven_weeks() {
    let setup = setup();
    let headers = agent("shop");
    let at =
        |second: u64| setup.start + Duration::from_millis(SEVEN_WEEKS - 300_000 + second * 1000);
    (0..600).for_each(|second| setup.ask("/api/v1/pods", &headers, record(at(second))));
    let report = setup.insight.report("enforce", at(600));
    let rate = report.polls[0].rate_per_second;
    assert!((rate - 1.0).abs() < 0.05, "{rate}");
    assert!((report.polls[0].period_seconds.unwrap() - 1.0).abs() < 0.05);
}

#[test]
fn a_million_different_queries_take_no_more_than_their_bound() {
    const QUERIES: u64 = 1_000_000;
    const BYTES_MAX: usize = 16 * 1024 * 1024;
    let setup = setup();
    let headers = agent("attacker");
    let uri = Uri::from_static("/api/v1/namespaces/a/pods/b");
    let mut info = RequestInfo::parse(&Method::GET, &uri, &headers);
    if let RequestInfo::Resource(request) = &mut info {
        request.read = Err(NotModelled::UnknownParameter);
    }
    for number in 0..QUERIES {
        let (mut key, mut name) = (String::new(), String::new());
        match number % 4 {
            0 => key = format!("key-{number}"),
            1 => name = format!("agent-{number}-{}", "x".repeat(300)),
            _ => {}
        }
        let RequestInfo::Resource(request) = &mut info else { panic!("a resource") };
        // New values, new resources and new clients, in turn.
        request.name = (number % 4 == 2).then(|| format!("pod-{number}").into());
        request.resource.resource =
            if key.is_empty() { "pods".into() } else { key.as_str().into() };
        let headers = if name.is_empty() { headers.clone() } else { agent(&name) };
        let text = format!("/{number}");
        let at = setup.start + Duration::from_millis(number);
        let asker = setup
            .insight
            .asker(&AccountRequest { info: &info, text: &text, headers: &headers, caller: "" }, at);
        setup.insight.record(&asker, number, &record(at));
    }
    assert!(setup.insight.accounts() <= ACCOUNTS_MAX);
    let held: usize = setup.insight.table().accounts.values().map(|a| a.held_bytes()).sum();
    assert!(held <= BYTES_MAX, "{held} bytes");
    assert!(setup.insight.table().client_groups.len() <= ACCOUNTS_MAX);
    let report = setup.report(QUERIES as f64 / 1000.0);
    assert_eq!(report.totals.requests, QUERIES);
    assert!(report.polls.len() <= ACCOUNTS_MAX);
    let told: u64 = report.polls.iter().map(|poll| poll.requests).sum();
    assert_eq!(told + report.others.requests, QUERIES);
    assert!(report.others.accounts > 100_000, "{:?}", report.others);
    assert!(report.polls.iter().all(|poll| poll.user_agent.len() <= 128));
}

#[test]
fn a_write_is_compared_with_the_replica_or_the_last_response() {
    let setup = setup();
    let asker = setup.asker("/api/v1/namespaces/a/pods/b", &agent("shop"), setup.start);
    setup.insight.record(&asker, 1, &record(setup.start));
    let (pods, key) = (GroupResource::new("", "pods"), ObjectKey::new(Some("a"), "b"));
    let version = |number: u32| ResourceVersion::parse(&number.to_string()).unwrap();
    let counts = || {
        let counts = asker.account.snapshot().counts;
        (counts.writes_compared, counts.writes_in_vain)
    };
    setup.insight.write_observer(&asker, None).answered(&pods, &key, &version(5));
    assert_eq!(counts(), (0, 0), "the earlier object is unknown");
    setup.insight.write_observer(&asker, None).answered(&pods, &key, &version(5));
    assert_eq!(counts(), (1, 1));
    setup.insight.write_observer(&asker, Some(&version(5))).answered(&pods, &key, &version(6));
    assert_eq!(counts(), (2, 1));
    let other = ObjectKey::new(Some("a"), "c");
    setup.insight.write_observer(&asker, Some(&version(9))).answered(&pods, &other, &version(9));
    assert_eq!(counts(), (3, 2));
    setup.insight.write_observer(&asker, None).showed(&pods, &key, &version(7));
    setup.insight.write_observer(&asker, None).answered(&pods, &key, &version(7));
    assert_eq!(counts(), (4, 3), "a read had shown it");
}
