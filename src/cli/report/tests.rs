//! The text of reports with no poll, three and three thousand.

use super::*;
use crate::insight::report::{Answers, Cost, Estimate, Others, Saved, Totals};

fn empty() -> Report {
    Report {
        mode: "enforce".into(),
        version: "0.1.0".into(),
        up_seconds: 754.2,
        totals: Totals {
            estimate: Estimate { formula: "estimate, by a formula".into(), ..Estimate::default() },
            ..Totals::default()
        },
        ..Report::default()
    }
}

fn poll(agent: &str, verb: &str, resource: &str, requests: u64) -> Poll {
    Poll {
        user_agent: agent.into(),
        verb: verb.into(),
        resource: resource.into(),
        scope: "namespace".into(),
        requests,
        rate_per_second: 6.67,
        bytes: requests * 739_000,
        clients: 1,
        answers: Answers { cache: requests - 2, upstream: 2, ..Answers::default() },
        saved: Saved { requests: requests - 2, bytes: (requests - 2) * 739_000 },
        cost: Cost { apiserver_cpu_seconds: 8.4, etcd_cpu_seconds: 0.35 },
        risk: "none".into(),
        ..Poll::default()
    }
}

fn three() -> Report {
    let polling = Poll {
        query: "labelSelector=app".into(),
        period_seconds: Some(3.0),
        jitter: Some(0.01),
        unchanged_share: Some(0.985),
        reasons: [("behind".into(), 12)].into(),
        risk: "medium".into(),
        findings: vec!["quorum-list-polling".into()],
        ..poll("fabric8-kubernetes-client/7.6.1", "list", "pods", 1_000)
    };
    let behind = ReasonTotal {
        reason: "behind".into(),
        requests: 12,
        meaning: "The replica is behind.".into(),
        remedy: "None if rare.".into(),
        configuration: "cache.rules[].freshness".into(),
    };
    let finding = Finding {
        id: "quorum-list-polling".into(),
        title: "polls with consistent LISTs".into(),
        caller: polling.caller.clone(),
        user_agent: polling.user_agent.clone(),
        library: "fabric8".into(),
        verb: "list".into(),
        resource: "pods".into(),
        scope: "namespace".into(),
        query: "labelSelector=app".into(),
        period_seconds: Some(3.0),
        evidence: "1000 LISTs without resourceVersion every 3 s".into(),
        fix: "Use an informer.".into(),
    };
    Report {
        totals: Totals {
            requests: 1_012,
            from_memory: 1_006,
            forwarded: 6,
            upstream_requests: 9,
            saved_requests: 1_003,
            saved_bytes: 742_000_000,
            estimate: Estimate {
                apiserver_cpu_seconds: 8.44,
                etcd_cpu_seconds: 0.352,
                ..empty().totals.estimate
            },
            ..Totals::default()
        },
        polls: vec![
            polling,
            poll("", "get", "configmaps", 10),
            poll("kubectl/v1.32.4", "list", "pods", 2),
        ],
        findings: vec![finding],
        reasons: vec![behind],
        others: Others { accounts: 12, requests: 34 },
        ..empty()
    }
}

const NOTHING: &str = "\
Listless 0.1.0, mode enforce, up 12.6 min
0 requests: 0 answered from memory, 0 shared, 0 forwarded, 0 refused, 0 failed; 0 were throttled
saved, estimated: 0.0 s of kube-apiserver's CPU time and 0.0 s of etcd's
saved: 0 B of responses, 0 requests

No requests yet.
";

const THREE: &str = "\
Listless 0.1.0, mode enforce, up 12.6 min
1 012 requests: 1 006 answered from memory, 0 shared, 6 forwarded, 0 refused, 0 failed; 0 were throttled
saved, estimated: 8.4 s of kube-apiserver's CPU time and 0.4 s of etcd's
saved: 742 MB of responses, 1 003 requests

1. fabric8-kubernetes-client/7.6.1 polls with consistent LISTs: list pods (namespace, labelSelector=app), every 3 s [quorum-list-polling]
   seen: 1000 LISTs without resourceVersion every 3 s
   fix (fabric8): Use an informer.

USER AGENT                       VERB  RESOURCE    SCOPE      QUERY              REQUESTS  PER S  PERIOD   BYTES  SAME  SAVED  NOT FROM MEMORY  RISK    FOUND
fabric8-kubernetes-client/7.6.1  list  pods        namespace  labelSelector=app     1 000   6.67     3 s  739 MB   98%   100%  behind 12        medium  quorum-list-polling
-                                get   configmaps  namespace  -                        10   6.67       -  7.4 MB     -    80%                   none
kubectl/v1.32.4                  list  pods        namespace  -                         2   6.67       -  1.5 MB     -     0%                   none
grouped without detail: 34 requests of about 12 other kinds

Not answered from memory
behind, 12 requests: The replica is behind.
   remedy: None if rare.
   configuration: cache.rules[].freshness
";

#[test]
fn an_empty_report_says_so() {
    assert_eq!(terminal(&empty(), 20, Screen::PLAIN), NOTHING);
    let text = markdown(&empty(), 20);
    assert!(text.contains("\nNone were found.\n") && text.ends_with("No requests yet.\n"));
}

#[test]
fn savings_are_never_below_zero() {
    let estimate = Estimate {
        apiserver_cpu_seconds: -0.02,
        etcd_cpu_seconds: -0.0,
        ..empty().totals.estimate
    };
    let totals = Totals { saved_requests: -4, saved_bytes: -9, estimate, ..Totals::default() };
    let expected = "saved, estimated: 0.0 s of kube-apiserver's CPU time and 0.0 s of etcd's\n\
                    saved: 0 B of responses, no requests (4 of Listless's own)";
    assert_eq!(savings(&totals), expected);
}

#[test]
fn a_report_of_three_polls_fits_on_a_screen() {
    assert_eq!(terminal(&three(), 20, Screen::PLAIN), THREE);
}

#[test]
fn a_ticket_has_the_finding_the_fix_and_the_formula() {
    let text = markdown(&three(), 20);
    for part in [
        "1. **fabric8-kubernetes-client/7.6.1 polls with consistent LISTs: list pods \
         (namespace, labelSelector=app), every 3 s \\[quorum-list-polling\\]**\n",
        "   * Fix: Use an informer.\n",
        "| user agent | verb |",
        "| kubectl/v1.32.4 | list | pods |",
        "| behind | 12 | The replica is behind. | None if rare. | cache.rules\\[\\].freshness |\n",
        "CPU time is an estimate, by a formula.\n",
    ] {
        assert!(text.contains(part), "{part}\nis not in\n{text}");
    }
}

#[test]
fn a_report_of_thousands_shows_the_first_and_counts_the_rest() {
    let polls = (0..3_000).map(|n| poll(&format!("agent-{n}"), "list", "pods", 3_000 - n + 2));
    let report = Report { polls: polls.collect(), ..empty() };
    let text = terminal(&report, 20, Screen::PLAIN);
    assert_eq!(text.lines().count(), 4 + 1 + 1 + 1 + 1 + 20 + 1, "{text}");
    assert!(text.ends_with("… and 2 980 more: --limit 0 shows all, -o json too\n"), "{text}");
    let all = terminal(&report, usize::MAX, Screen::PLAIN);
    assert_eq!(all.lines().count(), 4 + 1 + 1 + 1 + 1 + 3_000);
    assert!(all.lines().all(|line| line.chars().count() <= 200));
}

#[test]
fn a_narrow_terminal_shows_every_row_on_one_line() {
    for width in [70, 80, 100, 120] {
        let text = terminal(&three(), 20, Screen { width, colours: false });
        assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
        let rows = text.lines().filter(|line| line.contains("list  ") || line.contains("get  "));
        assert_eq!(rows.count(), 3, "{width}:\n{text}");
    }
    let text = terminal(&three(), 20, Screen { width: 80, colours: false });
    for part in ["USER AGENT ", " RESOURCE ", " REQUESTS ", " NOT FROM MEMORY ", " behind 12 "] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn a_terminal_with_colours_shows_the_same_text() {
    let screen = |colours| Screen { width: 80, colours };
    let painted = terminal(&three(), 20, screen(true));
    for part in ["\u{1b}[1mUSER AGENT", "\u{1b}[31mmedium\u{1b}[0m", "\u{1b}[32m100%"] {
        assert!(painted.contains(part), "{part:?} is not in\n{painted}");
    }
    let mut plain = painted;
    for code in ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[31m", "\u{1b}[32m"] {
        plain = plain.replace(code, "");
    }
    assert_eq!(plain, terminal(&three(), 20, screen(false)));
}
