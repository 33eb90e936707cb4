//! Sends every case directly and through a target, and reports each difference.
//!
//! The cluster must be quiet. A target that is Listless gets each case twice at once. It then gets
//! the case until it answers from memory where it should.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::MissedTickBehavior;

use crate::dataset::{Dataset, current_version};
use crate::rig::client::{Answer, Client, Protocol, Request};
use crate::rig::control_plane::{ControlPlane, User, Version};

mod body;
pub mod case;
pub mod cases;
pub mod judge;
pub mod mutation;
pub mod protobuf;
pub mod target;

use case::{Caller, Case, Memory, Pace, Pages};
use judge::{Bounds, ComparedAnswers, Served, Side};
use target::{Kind, Target};

/// The number of retries of a response that changes by itself, before a difference counts.
const CLOCK_TRIES: u32 = 4;
/// The number of attempts to get a response between two equal ones of the apiserver.
const AGES_TRIES: u32 = 20;
/// The number of attempts before a case counts as never answered from memory.
const WARM_TRIES: u32 = 600;
/// The same for a case whose replica is behind its floor, which may last.
const WARM_TRIES_WHEN_BEHIND: u32 = 60;
/// Both, once that many cases have failed in the same way.
const WARM_TRIES_WHEN_HOPELESS: u32 = 3;
const HOPELESS_AFTER: usize = 10;
const WARM_PERIOD: Duration = Duration::from_millis(50);
/// The prefixes of the headers that make a request another user's.
const OTHERS: [&str; 2] = ["Impersonate-", "Authorization"];
/// Pages of one chain; more means that it does not end.
const PAGES_MAX: usize = 200;

/// The suite: a control plane, its data, and the target to compare it with.
#[derive(Debug)]
pub struct Suite<'a> {
    version: Version,
    dataset: &'a Dataset,
    direct: Target,
    through: Target,
    probe: Client,
    /// A client that accepts several forms must get the apiserver's choice.
    of_one_form: bool,
    floors: BTreeMap<(Caller, String), u64>,
    /// The last `Cache-Status`.
    last_status: String,
    report: Report,
}

/// The results of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The number of cases sent.
    pub cases: usize,
    /// The number of compared pairs of responses.
    pub exchanges: usize,
    /// The number of the target's responses from memory.
    pub hits: usize,
    /// The number of the target's forwarded responses.
    pub forwarded: usize,
    /// The number of times each `Cache-Status` came.
    pub reasons: BTreeMap<String, usize>,
    /// Cases whose last answer came from memory.
    pub cases_hit: usize,
    /// Cases that should be answered from memory in the end.
    pub wanted: usize,
    /// Cases among them that were not, because this session was shown something newer.
    pub behind: usize,
    /// Cases among them that were not for another reason.
    pub cold: Vec<String>,
    /// Differences, each with its case.
    pub differences: Vec<String>,
}

// === impl Suite ===

impl<'a> Suite<'a> {
    /// A suite that compares a control plane with a target.
    pub fn new(plane: &ControlPlane, dataset: &'a Dataset, through: Target) -> Result<Self> {
        let server = plane.server()?;
        let token = User::Admin.token();
        Ok(Self {
            version: plane.version(),
            dataset,
            direct: Target::new(&server, &token, Kind::Apiserver, Protocol::Http2),
            through,
            probe: plane.client(User::Admin, Protocol::Http2)?,
            of_one_form: false,
            floors: BTreeMap::new(),
            last_status: String::new(),
            report: Report::default(),
        })
    }

    /// Requires the form that the apiserver chooses where a client accepts several.
    pub fn of_one_form(mut self) -> Self {
        self.of_one_form = true;
        self
    }

    /// Runs cases over both HTTP versions.
    pub async fn run(mut self, cases: &[Case]) -> Result<Report> {
        for protocol in [Protocol::Http2, Protocol::Http1] {
            self.direct = self.direct.over(protocol);
            self.through = self.through.over(protocol);
            for case in cases {
                if let Err(error) = self.run_case(case, protocol).await {
                    let failure = format!("{protocol:?} {}\n    {error:#}", case.name());
                    self.report.differences.push(failure);
                }
            }
        }
        Ok(self.report)
    }

    async fn run_case(&mut self, case: &Case, protocol: Protocol) -> Result<()> {
        self.report.cases += 1;
        self.report.wanted += usize::from(case.memory == Memory::Wanted);
        let mut served = Served::Unsaid;
        let mut differences = Vec::new();
        for _ in 0..self.rounds(case) {
            let (found, now) = self.exchange_patiently(case).await?;
            (differences, served) = (found, now);
            if !differences.is_empty() || case.pace == Pace::Slow {
                break;
            }
        }
        if differences.is_empty() && self.through.kind() == Kind::Listless {
            (differences, served) = self.warm(case, served).await?;
        }
        self.report.cases_hit += usize::from(served == Served::Hit);
        let name = format!("{protocol:?} {}", case.name());
        self.report
            .differences
            .extend(differences.into_iter().map(|difference| format!("{name}\n    {difference}")));
        Ok(())
    }

    fn rounds(&self, case: &Case) -> u32 {
        match (self.through.kind(), case.pace) {
            (_, Pace::Slow) | (Kind::Apiserver, _) => 1,
            (Kind::Listless, _) => 2,
        }
    }

    /// Repeats a case until it is answered from memory, comparing every answer.
    async fn warm(&mut self, case: &Case, last: Served) -> Result<(Vec<String>, Served)> {
        if case.memory == Memory::Never && last == Served::Hit {
            return Ok((vec!["answered from memory".to_owned()], last));
        }
        if case.memory != Memory::Wanted || last == Served::Hit {
            return Ok((Vec::new(), last));
        }
        let tries = |failed, tries| {
            if failed > HOPELESS_AFTER { WARM_TRIES_WHEN_HOPELESS } else { tries }
        };
        let tries_when_behind = tries(self.report.behind, WARM_TRIES_WHEN_BEHIND);
        let tries = tries(self.report.cold.len(), WARM_TRIES);
        let mut period = tokio::time::interval(WARM_PERIOD);
        period.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let is_behind = |status: &str| status.contains("fwd=stale");
        for attempt in 0..tries {
            period.tick().await;
            let (differences, served) = self.exchange_patiently(case).await?;
            if !differences.is_empty() || served == Served::Hit {
                return Ok((differences, served));
            }
            if attempt >= tries_when_behind && is_behind(&self.last_status) {
                break;
            }
        }
        if is_behind(&self.last_status) {
            self.report.behind += 1;
        } else {
            self.report.cold.push(format!("{} ({})", case.name(), self.last_status));
        }
        Ok((Vec::new(), Served::Forwarded))
    }

    /// Compares again responses that change by themselves: chance ends, a difference stays.
    async fn exchange_patiently(&mut self, case: &Case) -> Result<(Vec<String>, Served)> {
        let tries = if case.pace == Pace::Clock { CLOCK_TRIES } else { 1 };
        let mut outcome = (Vec::new(), Served::Unsaid);
        for _ in 0..tries {
            outcome = self.exchange(case).await?;
            if outcome.0.is_empty() {
                break;
            }
        }
        Ok(outcome)
    }

    async fn exchange(&mut self, case: &Case) -> Result<(Vec<String>, Served)> {
        let (mut differences, direct, through) = self.compare_once(case).await?;
        let (expected, status) = (case.expected_status(self.version), direct.answer.status);
        if status.as_u16() != expected {
            differences.push(format!("the table says {expected}, the apiserver {status}"));
        }
        let served = Served::of(&through.answer);
        if case.pages == Pages::All && differences.is_empty() {
            differences = self.compare_pages(case, &direct, &through).await?;
        }
        Ok((differences, served))
    }

    async fn compare_once(&mut self, case: &Case) -> Result<(Vec<String>, Side, Side)> {
        let request = case.request(self.dataset);
        let (direct, through) = match case.pace {
            Pace::Slow => tokio::try_join!(
                self.direct.send(case.caller, request.clone()),
                self.through.send(case.caller, request)
            )?,
            Pace::Ages => self.between_equals(case, &request).await?,
            Pace::Still | Pace::Clock => self.one_after_the_other(case, &request).await?,
        };
        self.report.exchanges += 1;
        let direct = self.as_json_too(case, direct, &through).await?;
        match Served::of(&through) {
            Served::Hit => self.report.hits += 1,
            Served::Forwarded => self.report.forwarded += 1,
            Served::Unsaid => {}
        }
        self.last_status = through.header("cache-status").unwrap_or_default().to_owned();
        *self.report.reasons.entry(self.last_status.clone()).or_default() += 1;
        let (direct, through) = (Side::new(direct), Side::new(through));
        let key = (case.caller, case.query());
        // State shown to another user is no floor of this session.
        let is_others = |name: &str| OTHERS.iter().any(|start| name.starts_with(start));
        let is_own = !case.headers.iter().any(|(name, _)| is_others(name));
        let floor = self.floors.get(&key).filter(|_| is_own).copied().unwrap_or(0);
        let differences = self.differences(case, &direct, &through, floor).await?;
        if is_own && case.parameter("resourceVersion").is_none() {
            self.floors.insert(key, floor.max(through.version().unwrap_or(0)));
        }
        Ok((differences, direct, through))
    }

    async fn one_after_the_other(
        &self,
        case: &Case,
        request: &Request,
    ) -> Result<(Answer, Answer)> {
        let direct = self.direct.send(case.caller, request.clone()).await?;
        Ok((direct, self.through.send(case.caller, request.clone()).await?))
    }

    /// Sends all again if the apiserver's own response changes meanwhile. Ages may change within a
    /// second of the clock: the time of an event has microseconds.
    async fn between_equals(&self, case: &Case, request: &Request) -> Result<(Answer, Answer)> {
        for _ in 0..AGES_TRIES {
            let (before, through) = self.one_after_the_other(case, request).await?;
            let after = self.direct.send(case.caller, request.clone()).await?;
            if after.body == before.body {
                return Ok((before, through));
            }
        }
        bail!("the apiserver never gave two equal responses in succession")
    }

    /// A client that accepts protobuf and JSON may get either (S-CT-10). A JSON response from
    /// memory is compared with the apiserver's own JSON.
    async fn as_json_too(&self, case: &Case, direct: Answer, through: &Answer) -> Result<Answer> {
        let is = |answer: &Answer, media| answer.header("content-type") == Some(media);
        let substituted = !self.of_one_form
            && Served::of(through) == Served::Hit
            && is(&direct, "application/vnd.kubernetes.protobuf")
            && is(through, "application/json");
        let accept = case.headers.iter().find(|(name, _)| name == "Accept");
        let mut clauses = accept.into_iter().flat_map(|(_, value)| value.split(','));
        let is_json = |clause: &&str| {
            ["application/json", "*/*"].iter().any(|it| clause.trim().starts_with(it))
        };
        let json = clauses.find(is_json).map(|clause| clause.replace("*/*", "application/json"));
        let Some(json) = json.filter(|_| substituted) else { return Ok(direct) };
        let mut request = case.request(self.dataset);
        request.headers.retain(|(name, _)| name != "Accept");
        self.direct.send(case.caller, request.header("Accept", json.trim())).await
    }

    async fn differences(
        &self,
        case: &Case,
        direct: &Side,
        through: &Side,
        floor: u64,
    ) -> Result<Vec<String>> {
        let ceiling = match through.version() {
            Some(_) => current_version(&self.probe).await?,
            None => 0,
        };
        let (kind, dataset) = (self.through.kind(), self.dataset);
        let bounds = Bounds { floor, ceiling };
        Ok(ComparedAnswers { case, dataset, kind, direct, through, bounds }.differences())
    }

    /// Follows each side's own tokens, page by page.
    async fn compare_pages(
        &mut self,
        case: &Case,
        direct: &Side,
        through: &Side,
    ) -> Result<Vec<String>> {
        let mut pair = (next_page(case, direct), next_page(case, through));
        for _ in 0..PAGES_MAX {
            let (next_direct, next_through) = match pair {
                (Some(next_direct), Some(next_through)) => (next_direct, next_through),
                (None, None) => return Ok(Vec::new()),
                _ => return Ok(vec!["one side has more pages".to_owned()]),
            };
            let direct = self.direct.send(case.caller, next_direct.request(self.dataset)).await?;
            let through =
                self.through.send(case.caller, next_through.request(self.dataset)).await?;
            let (direct, through) = (Side::new(direct), Side::new(through));
            let differences = self.differences(case, &direct, &through, 0).await?;
            if !differences.is_empty() {
                return Ok(differences);
            }
            pair = (next_page(case, &direct), next_page(case, &through));
        }
        Ok(vec![format!("more than {PAGES_MAX} pages")])
    }
}

/// The case for the next page of a response, if it has one.
fn next_page(case: &Case, answer: &Side) -> Option<Case> {
    let token = answer.token()?;
    // A version and a match may be named only for the first page.
    let (path, query) = case.target.split_once('?').unwrap_or((&case.target, ""));
    let kept = query.split('&').filter(|pair| !pair.starts_with("resourceVersion"));
    let kept: Vec<&str> = kept.collect();
    let mut next = case.clone();
    next.target = format!("{path}?{}&continue={}", kept.join("&"), token.text);
    Some(next)
}

// === impl Report ===

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} cases, {} exchanges, {} differences; answers: {} from memory, {} forwarded; \
             cases: {} from memory in the end, {} wanted so, of which {} behind and {} cold",
            self.cases,
            self.exchanges,
            self.differences.len(),
            self.hits,
            self.forwarded,
            self.cases_hit,
            self.wanted,
            self.behind,
            self.cold.len()
        )?;
        for difference in self.differences.iter().take(40) {
            write!(out, "\n  {difference}")?;
        }
        for case in self.cold.iter().take(20) {
            write!(out, "\n  never from memory: {case}")?;
        }
        for (reason, count) in self.reasons.iter().filter(|(reason, _)| !reason.is_empty()) {
            write!(out, "\n  {count:5} {reason}")?;
        }
        Ok(())
    }
}
