//! The report, computed from copies of the accounts.

use std::{
    cmp::Ordering as Order,
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering,
};

use tokio::time::Instant;

use super::{
    Insight,
    account::Tally,
    arrivals::Arrival,
    cost,
    counts::Counts,
    detect::{self, Crowd, Facts, Found, Pattern},
    period, reasons,
    report::{
        Answers, Apiserver, Estimate, Finding, Others, Poll, Report, Saved, Totals, WouldSave,
    },
    up,
};

/// The maximum number of accounts whose askers are separated by pattern, which takes milliseconds
/// for each.
const PATTERNS_MAX: usize = 64;

/// The maximum number of findings. The most expensive are kept.
const FINDINGS_MAX: usize = 200;

/// The apiserver cores from which a poll is a high risk.
const HIGH_CORES: f64 = 0.05;
/// The apiserver cores from which a poll is a medium risk.
const MEDIUM_CORES: f64 = 0.005;

/// Returns the report of all counts and findings.
pub(super) fn report(insight: &Insight, mode: &str, now: Instant) -> Report {
    let now_millis = insight.millis(now);
    let facts = facts(insight);
    let mut found = detect::all(&facts);
    let weight = |found: &Found| facts[found.account].tally.counts.cost.0;
    found.sort_by(|a, b| weight(b).total_cmp(&weight(a)).then(a.pattern.cmp(&b.pattern)));
    let mut patterns: BTreeMap<usize, Vec<Pattern>> = BTreeMap::new();
    found.iter().for_each(|found| patterns.entry(found.account).or_default().push(found.pattern));

    let poll = |(account, facts)| {
        let patterns = patterns.get(&account).map_or(&[][..], Vec::as_slice);
        poll(facts, patterns, now_millis)
    };
    let mut polls: Vec<Poll> = facts.iter().enumerate().map(poll).collect();
    polls.sort_by(dearest);
    found.truncate(FINDINGS_MAX);
    Report {
        mode: mode.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        up_seconds: up(&insight.0, now).as_secs_f64(),
        // Known to those who run the proxy, not to the account of its requests.
        apiserver: Apiserver::default(),
        totals: totals(insight, &facts),
        polls,
        findings: found.into_iter().map(|found| finding(&facts, found)).collect(),
        reasons: reasons::totals(facts.iter().flat_map(|facts| facts.tally.counts.reasons.clone())),
        others: others(insight),
    }
}

fn facts(insight: &Insight) -> Vec<Facts> {
    let accounts: Vec<_> = insight.table().accounts.values().cloned().collect();
    let mut accounts: Vec<_> =
        accounts.iter().map(|account| (account, account.snapshot())).collect();
    accounts.sort_by(|(_, one), (_, other)| other.counts.cost.0.total_cmp(&one.counts.cost.0));
    let mut patterns_left = PATTERNS_MAX;
    let facts = accounts.into_iter().map(|(account, tally)| {
        let (arrivals, gaps) = (tally.arrivals.in_order(), tally.gaps.in_order());
        let period = period::plain(&arrivals, &gaps).or_else(|| {
            let enough = arrivals.len() >= period::PATTERN_MIN;
            patterns_left = patterns_left.checked_sub(usize::from(enough))?;
            period::find(&arrivals, &gaps)
        });
        let (shape, habits) = (account.shape.clone(), account.client_group.habits());
        Facts { shape, tally, habits, period, crowd: Crowd::of(&arrivals) }
    });
    facts.filter(|facts| facts.tally.counts.requests > 0).collect()
}

// === impl Crowd ===

impl Crowd {
    fn of(arrivals: &[Arrival]) -> Self {
        let mut asked: BTreeMap<u16, (u16, usize, bool)> = BTreeMap::new();
        for arrival in arrivals {
            let (value, count, same) =
                asked.entry(arrival.client).or_insert((arrival.value, 0, true));
            *same &= *value == arrival.value;
            *count += 1;
        }
        let mut crowd = Self::default();
        for (_, _, same) in asked.into_values().filter(|(_, count, _)| *count >= 2) {
            *(if same { &mut crowd.of_one_value } else { &mut crowd.of_many }) += 1;
        }
        crowd
    }
}

fn poll(facts: &Facts, patterns: &[Pattern], now: u64) -> Poll {
    let Facts { shape, tally, period, .. } = facts;
    let counts = &tally.counts;
    let [cache, coalesced, upstream, proxy, client_closed] = counts.answers;
    let compared = counts.compared as f64;
    Poll {
        caller: shape.caller.to_string(),
        user_agent: shape.user_agent.to_string(),
        verb: shape.verb.as_str().to_owned(),
        resource: shape.resource.to_string(),
        scope: shape.scope.to_owned(),
        query: shape.query.to_string(),
        requests: counts.requests,
        rate_per_second: rounded(tally.rate(now)),
        period_seconds: period.map(|period| rounded(period.seconds)),
        jitter: period.map(|period| rounded(period.jitter)),
        bytes: counts.bytes,
        unchanged_share: (counts.compared > 0).then(|| rounded(counts.unchanged as f64 / compared)),
        clients: clients(tally),
        answers: Answers { cache, coalesced, upstream, proxy, client_closed },
        reasons: counts.reasons.iter().map(|(why, n)| ((*why).to_owned(), *n)).collect(),
        saved: Saved { requests: cache + coalesced, bytes: counts.saved_bytes },
        would_save: WouldSave { requests: counts.would_save },
        cost: cost::seconds(counts.cost),
        risk: risk(tally, patterns, now).to_owned(),
        findings: patterns.iter().map(|pattern| pattern.id().to_owned()).collect(),
    }
}

/// Returns the number of clients, exactly if all were seen recently.
fn clients(tally: &Tally) -> u64 {
    let arrivals = tally.arrivals.in_order();
    let recent: BTreeSet<u16> = arrivals.iter().map(|arrival| arrival.client).collect();
    let (recent, ever) = (recent.len() as u64, tally.clients.count());
    if ever.abs_diff(recent) * 4 <= recent { recent } else { ever }
}

/// Returns the risk by the load on the apiserver, or by the load without Listless.
fn risk(tally: &Tally, patterns: &[Pattern], now: u64) -> &'static str {
    let each = tally.counts.cost.0 / 1e6 / tally.counts.requests.max(1) as f64;
    match each * tally.rate(now) {
        cores if cores >= HIGH_CORES => "high",
        cores if cores >= MEDIUM_CORES => "medium",
        _ if patterns.is_empty() => "none",
        _ => "low",
    }
}

fn dearest(one: &Poll, other: &Poll) -> Order {
    let cost = |poll: &Poll| poll.cost.apiserver_cpu_seconds;
    let by_cost = cost(other).total_cmp(&cost(one));
    let key = |poll: &Poll| (poll.client(), poll.resource.clone(), poll.query.clone());
    by_cost.then_with(|| other.requests.cmp(&one.requests)).then_with(|| key(one).cmp(&key(other)))
}

fn finding(facts: &[Facts], found: Found) -> Finding {
    let shape = &facts[found.account].shape;
    let library = shape.traits.library;
    Finding {
        id: found.pattern.id().to_owned(),
        title: detect::title(found.pattern).to_owned(),
        caller: shape.caller.to_string(),
        user_agent: shape.user_agent.to_string(),
        library: library.as_str().to_owned(),
        verb: shape.verb.as_str().to_owned(),
        resource: shape.resource.to_string(),
        scope: shape.scope.to_owned(),
        query: shape.query.to_string(),
        period_seconds: found.seconds.map(rounded),
        evidence: found.evidence,
        fix: detect::fix(found.pattern, library).to_owned(),
    }
}

fn totals(insight: &Insight, facts: &[Facts]) -> Totals {
    let mut sum = Counts::default();
    sum.add(&insight.0.others.snapshot().counts);
    sum.add(&insight.table().given_up);
    facts.iter().for_each(|facts| sum.add(&facts.tally.counts));
    let [from_memory, coalesced, forwarded, own, client_closed] = sum.answers;
    let sent = &insight.0.sent;
    let upstream_requests = sent.requests.load(Ordering::Relaxed);
    let received = sent.own_bytes.load(Ordering::Relaxed);
    // These are Listless's own requests: lists and watches of replicas, access reviews, discovery.
    let for_itself = upstream_requests.saturating_sub(sent.passed_on.load(Ordering::Relaxed));
    let spent = cost::of_own(for_itself, received);
    let net = |saved: f64, spent: f64| rounded((saved - spent) / 1e6);
    Totals {
        requests: sum.requests,
        from_memory,
        coalesced,
        paced: sum.paced,
        paced_from_memory: sum.paced_from_memory,
        refused: sum.refused,
        forwarded,
        failed: own.saturating_sub(sum.refused),
        client_closed,
        upstream_requests,
        saved_requests: signed(from_memory + coalesced) - signed(for_itself),
        saved_bytes: signed(sum.saved_bytes) - signed(received),
        would_save_requests: sum.would_save,
        estimate: Estimate {
            apiserver_cpu_seconds: net(sum.saved_cost.0, spent.0),
            etcd_cpu_seconds: net(sum.saved_cost.1, spent.1),
            formula: cost::formula(),
        },
    }
}

fn others(insight: &Insight) -> Others {
    let unlisted = insight.0.others.snapshot().counts.requests;
    let table = insight.table();
    Others { accounts: table.unlisted.count(), requests: unlisted + table.given_up.requests }
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Rounds a number for people.
fn rounded(number: f64) -> f64 {
    (number * 1e4).round() / 1e4
}
