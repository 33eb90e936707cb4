//! Read your writes: every kind of write, each followed at once by a LIST and a GET that must show
//! it.
//!
//! Writes and reads go through the target. A second writer changes other objects of the same
//! collections directly, so that a replica behind the target always moves.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::Result;
use futures_util::{StreamExt, stream};
use http::Method;
use serde_json::json;

use crate::differential::judge::Served;
use crate::rig::client::{Answer, Client, Request};

mod operation;
mod subject;

pub use operation::Operation;
use subject::Subject;

const CHURN_PERIOD: Duration = Duration::from_millis(20);
/// The number of misses with details; the count itself is never cut.
const TOLD_MAX: usize = 20;
/// The maximum number of LISTs until a replica answers.
const WARM_TRIES: u32 = 2_400;
const WARM_PERIOD: Duration = Duration::from_millis(25);

/// The namespace the loops work in.
pub const NAMESPACE: &str = "ryw";

/// The results of the loops.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Iterations per kind of write.
    pub iterations: BTreeMap<Operation, u32>,
    /// Reads answered from memory.
    pub hits: usize,
    /// Reads answered otherwise.
    pub others: usize,
    /// Reads that did not show the write before them.
    pub misses: usize,
    /// Changes of the other writer meanwhile.
    pub churned: usize,
    /// The first misses.
    pub told: Vec<String>,
}

/// The participants: the client under test and one that goes directly to the apiserver.
#[derive(Clone, Debug)]
pub struct Parties {
    /// Writes and reads through the target, over each HTTP version to be tested.
    pub through: Vec<Client>,
    /// Writes directly.
    pub straight: Client,
}

// === impl Parties ===

impl Parties {
    /// Creates the namespace, and waits until lists come from memory if they should.
    pub async fn prepare(&self, from_memory: bool) -> Result<()> {
        let namespace = json!({"metadata": {"name": NAMESPACE}});
        let post = Request::new(Method::POST, "/api/v1/namespaces").json(&namespace);
        self.straight.send(post).await?;
        if !from_memory {
            return Ok(());
        }
        let mut period = tokio::time::interval(WARM_PERIOD);
        for collection in Subject::collections() {
            for _ in 0..WARM_TRIES {
                let answer = self.through[0].get(&collection).await?;
                if Served::of(&answer) == Served::Hit {
                    break;
                }
                period.tick().await;
            }
        }
        Ok(())
    }

    /// Runs all kinds of writes side by side, `iterations` of each over all clients together.
    pub async fn run(&self, iterations: u32) -> Result<Report> {
        let share = iterations.div_ceil(self.through.len() as u32);
        let mut loops = Vec::new();
        for (index, client) in self.through.iter().enumerate() {
            for operation in Operation::ALL {
                let subject = Subject::new(client.clone(), operation, index);
                loops.push(repeat(subject, share));
            }
        }
        let count = loops.len();
        let all = stream::iter(loops).buffer_unordered(count).collect::<Vec<_>>();
        let mut report = Report::default();
        let parts = tokio::select! {
            parts = all => parts,
            error = self.churn(&mut report.churned) => return Err(error),
        };
        for part in parts {
            report.add(part?);
        }
        self.clear().await?;
        Ok(report)
    }

    /// Changes objects that carry the same labels as the loops' own; ends only by a failure.
    async fn churn(&self, changes: &mut usize) -> anyhow::Error {
        let mut period = tokio::time::interval(CHURN_PERIOD);
        for number in 0_u64.. {
            period.tick().await;
            let operation = Operation::ALL[number as usize % Operation::ALL.len()];
            if let Err(error) = Subject::churn(&self.straight, operation, number).await {
                return error.context("the other writer");
            }
            *changes += 1;
        }
        unreachable!("the numbers do not end")
    }

    async fn clear(&self) -> Result<()> {
        for collection in Subject::collections() {
            let target = format!("{collection}?gracePeriodSeconds=0");
            self.straight.send(Request::new(Method::DELETE, &target)).await?.successful()?;
        }
        Ok(())
    }
}

async fn repeat(mut subject: Subject, iterations: u32) -> Result<Report> {
    let mut report = Report::default();
    for number in 0..iterations {
        let expected = subject.write(number).await?;
        for answer in subject.read(&expected).await? {
            report.note(&answer.0, answer.1);
        }
        *report.iterations.entry(subject.operation).or_default() += 1;
    }
    Ok(report)
}

// === impl Report ===

impl Report {
    fn note(&mut self, answer: &Answer, miss: Option<String>) {
        match Served::of(answer) {
            Served::Hit => self.hits += 1,
            _ => self.others += 1,
        }
        if let Some(miss) = miss {
            self.misses += 1;
            if self.told.len() < TOLD_MAX {
                let status = answer.header("cache-status").unwrap_or("no cache-status");
                self.told.push(format!("{miss} ({status})"));
            }
        }
    }

    fn add(&mut self, other: Self) {
        for (operation, count) in other.iterations {
            *self.iterations.entry(operation).or_default() += count;
        }
        self.hits += other.hits;
        self.others += other.others;
        self.misses += other.misses;
        self.told.extend(other.told);
        self.told.truncate(TOLD_MAX);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.hits + self.others;
        write!(
            out,
            "{:?}; {all} reads, {} from memory, {} misses; {} changes by another writer",
            self.iterations, self.hits, self.misses, self.churned
        )?;
        self.told.iter().try_for_each(|miss| write!(out, "\n  {miss}"))
    }
}
