//! The period of one asker, computed from the arrival times of all. Pure.
//!
//! Twenty clients that poll every 3 s arrive 150 ms apart. They are separated by their values or
//! connections if possible, else by the pattern of all arrivals. An uncertain period is not
//! reported: random arrivals have none.

use std::collections::{BTreeMap, BTreeSet};

use super::arrivals::Arrival;

/// The period of one asker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Period {
    /// The median time between two requests of one asker.
    pub seconds: f64,
    /// The median deviation from it, as a fraction of it.
    pub jitter: f64,
    /// The method that separated the askers.
    pub separation: Separation,
}

/// The method that separates one asker from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Separation {
    /// By connection, with their number.
    ByConnection(usize),
    /// By value.
    ByValue,
    /// By the common pattern of this many askers.
    ByPattern(usize),
}

/// A median and the spread around it.
#[derive(Clone, Copy, Debug)]
struct Middle {
    median: f64,
    /// The median distance from the median.
    deviation: f64,
}

/// The maximum jitter of a period, as a fraction of it.
const JITTER_MAX: f64 = 0.2;
/// The maximum jitter of a pattern, which can look regular by chance.
const PATTERN_JITTER_MAX: f64 = 0.15;
/// The maximum distance of similar gaps from the median, as a fraction of it.
const COMMON: f64 = 0.3;
/// The minimum fraction of the time that similar gaps cover.
const FILLED_MIN: f64 = 0.5;
/// The minimum number of gaps.
const GAPS_MIN: usize = 3;
/// The minimum number of requests of a pattern.
pub const PATTERN_MIN: usize = 24;
/// The maximum number of askers in a pattern.
const PATTERN_ASKERS_MAX: usize = 128;
/// The minimum number of repetitions of a pattern.
const REPEATS_MIN: usize = 3;

/// Returns the period of one asker, from the latest arrivals and from the gaps of sampled values.
pub fn find(arrivals: &[Arrival], gaps: &[u32]) -> Option<Period> {
    plain(arrivals, gaps).or_else(|| by_pattern(arrivals)).or_else(|| one_by_one(arrivals, gaps))
}

/// Returns the period if single askers can be separated, which is cheap to compute.
pub fn plain(arrivals: &[Arrival], gaps: &[u32]) -> Option<Period> {
    by_connection(arrivals)
        .or_else(|| if is_pooled(arrivals) { None } else { one_by_one(arrivals, gaps) })
}

/// Reports whether several connections alternate with the same value. Then there are several
/// askers, and the gaps show their combined rate.
fn is_pooled(arrivals: &[Arrival]) -> bool {
    let Some((value, count)) = commonest(arrivals) else { return false };
    let mut connections: Vec<u16> = arrivals
        .iter()
        .filter(|arrival| arrival.value == value)
        .map(|arrival| arrival.client)
        .collect();
    connections.sort_unstable();
    connections.dedup();
    count >= PATTERN_MIN && connections.len() > 1 && connections.len() * 2 < count
}

fn one_by_one(arrivals: &[Arrival], gaps: &[u32]) -> Option<Period> {
    by_value(gaps).map(|found| in_turn(arrivals, found).unwrap_or(found))
}

/// Returns the period if each of several connections requests the same value regularly.
fn by_connection(arrivals: &[Arrival]) -> Option<Period> {
    let mut times: BTreeMap<(u16, u16), Vec<u32>> = BTreeMap::new();
    for arrival in arrivals {
        times.entry((arrival.value, arrival.client)).or_default().push(arrival.at);
    }
    times.retain(|_, times| times.len() >= 2);
    let between = |pair: &[u32]| seconds(pair[0], pair[1]);
    let gaps: Vec<Vec<f64>> =
        times.values().map(|times| times.windows(2).map(between).collect()).collect();
    let connections: BTreeSet<u16> = times.keys().map(|(_, client)| *client).collect();
    let count: usize = gaps.iter().map(Vec::len).sum();
    // If connections come and go, the lasting ones prove nothing.
    if connections.len() < 2 || count < 2 * GAPS_MIN || count * 2 < arrivals.len() {
        return None;
    }
    regular(&gaps, JITTER_MAX, Separation::ByConnection(connections.len()))
}

fn by_value(gaps: &[u32]) -> Option<Period> {
    if gaps.len() < GAPS_MIN {
        return None;
    }
    let gaps = gaps.iter().map(|gap| f64::from(*gap) / 1000.0).collect();
    regular(&[gaps], JITTER_MAX, Separation::ByValue)
}

/// Returns the period from the gaps of each separate asker.
fn regular(each: &[Vec<f64>], jitter_max: f64, separation: Separation) -> Option<Period> {
    let middle = Middle::of(&each.concat());
    // If twenty arrive at once, the commonest gap belongs to no asker: it covers no time.
    let common = |gap: &&f64| (**gap / middle.median - 1.0).abs() <= COMMON;
    let is_filled = |gaps: &[f64]| {
        gaps.iter().filter(common).sum::<f64>() >= FILLED_MIN * gaps.iter().sum::<f64>()
    };
    // Each asker counts by itself: one request every 30 minutes covers more time than many per
    // second.
    let (filled, others): (Vec<_>, Vec<_>) = each.iter().partition(|gaps| is_filled(gaps));
    let count = |part: Vec<&Vec<f64>>| part.into_iter().map(Vec::len).sum::<usize>();
    let most_fill = count(filled) >= count(others);
    (middle.median > 0.0 && middle.jitter() <= jitter_max && most_fill).then(|| Period {
        seconds: middle.median,
        jitter: middle.jitter(),
        separation,
    })
}

/// Returns the period of askers that take turns. They look like one fast asker with a longer gap
/// after each turn.
fn in_turn(arrivals: &[Arrival], steps: Period) -> Option<Period> {
    let times = times_of_the_same(arrivals)?;
    let is_turn = |pair: &[f64]| pair[1] - pair[0] > steps.seconds * (1.0 + COMMON);
    let starts: Vec<usize> =
        (1..times.len()).filter(|index| is_turn(&times[index - 1..=*index])).collect();
    if starts.len() <= REPEATS_MIN {
        return None;
    }
    let turns = || starts.windows(2);
    let between: Vec<f64> = turns().map(|pair| times[pair[1]] - times[pair[0]]).collect();
    let askers = starts[1] - starts[0];
    let is_alike = turns().all(|pair| pair[1] - pair[0] == askers);
    if askers < 2 || !is_alike {
        return None;
    }
    regular(&[between], PATTERN_JITTER_MAX, Separation::ByPattern(askers))
}

/// Returns the period from all requests for the same value, of any asker.
fn by_pattern(arrivals: &[Arrival]) -> Option<Period> {
    let times = times_of_the_same(arrivals)?;
    bursts(&times).or_else(|| repetition(&times))
}

/// Returns the times of the commonest value, in order.
fn times_of_the_same(arrivals: &[Arrival]) -> Option<Vec<f64>> {
    let (commonest, count) = commonest(arrivals)?;
    if count < PATTERN_MIN {
        return None;
    }
    let same: Vec<&Arrival> =
        arrivals.iter().filter(|arrival| arrival.value == commonest).collect();
    let first = same.first()?.at;
    let mut times: Vec<f64> = same.iter().map(|arrival| seconds(first, arrival.at)).collect();
    // Requests are recorded when they end, not when they arrive.
    times.sort_by(f64::total_cmp);
    Some(times)
}

/// Returns the commonest value and its count.
fn commonest(arrivals: &[Arrival]) -> Option<(u16, usize)> {
    let mut counts: BTreeMap<u16, usize> = BTreeMap::new();
    arrivals.iter().for_each(|arrival| *counts.entry(arrival.value).or_default() += 1);
    counts.into_iter().max_by_key(|(_, count)| *count)
}

/// Returns the period of bursts, with pauses of at least half of the time.
fn bursts(times: &[f64]) -> Option<Period> {
    let gaps = || times.windows(2).map(|pair| pair[1] - pair[0]);
    let rest = gaps().fold(0.0, f64::max);
    let within = gaps().filter(|gap| *gap <= rest / 2.0).fold(0.0, f64::max);
    let starts: Vec<f64> = times
        .windows(2)
        .filter(|pair| pair[1] - pair[0] > rest / 2.0)
        .map(|pair| pair[1])
        .collect();
    if starts.len() <= REPEATS_MIN || starts.len() * 10 > times.len() * 7 {
        return None;
    }
    let between: Vec<f64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let askers = (times.len() as f64 / (starts.len() + 1) as f64).round() as usize;
    let period = regular(&[between], PATTERN_JITTER_MAX, Separation::ByPattern(askers))?;
    (within <= period.seconds / 4.0 && rest >= period.seconds / 2.0).then_some(period)
}

/// Returns the period of a repeated sequence of `k` askers. Each asks once before the first asks
/// again, so a request and the `k`-th after it are one period apart. The smallest such `k` is used.
fn repetition(times: &[f64]) -> Option<Period> {
    let askers_max = (times.len() / REPEATS_MIN).min(PATTERN_ASKERS_MAX);
    let middles: Vec<Middle> = (1..=askers_max)
        .map(|askers| {
            let spans: Vec<f64> =
                times.windows(askers + 1).map(|span| span[askers] - span[0]).collect();
            Middle::of(&spans)
        })
        .collect();
    let is_regular = |middle: &Middle| middle.median > 0.0 && middle.jitter() <= PATTERN_JITTER_MAX;
    let regular = middles.iter().filter(|middle| is_regular(middle));
    let best = regular.map(Middle::blurred).min_by(f64::total_cmp)?;
    let is_best = |middle: &Middle| is_regular(middle) && middle.blurred() <= NEARLY * best;
    let mut index = middles.iter().position(is_best)?;
    while index + 1 < middles.len() && middles[index + 1].blurred() < middles[index].blurred() {
        index += 1;
    }
    let found = middles[index];
    // Long spans are regular by chance, but not more than slightly shorter ones.
    let shorter: Vec<f64> = middles[index / 3..index].iter().map(Middle::blurred).collect();
    if !shorter.is_empty() && found.blurred() > DIP * Middle::of(&shorter).median {
        return None;
    }
    let (seconds, jitter) = (found.median, found.jitter());
    Some(Period { seconds, jitter, separation: Separation::ByPattern(index + 1) })
}

/// The factor by which a deviation may exceed the smallest one.
const NEARLY: f64 = 1.4;
/// The maximum deviation of a pattern, as a fraction of its neighbours'.
const DIP: f64 = 0.65;
/// The resolution of deviations, as a fraction of a span.
const BLUR: f64 = 0.002;

// === impl Middle ===

impl Middle {
    fn of(values: &[f64]) -> Self {
        let median = median(values.to_vec());
        let distances = values.iter().map(|value| (value - median).abs()).collect();
        Self { median, deviation: self::median(distances) }
    }

    fn jitter(&self) -> f64 {
        self.deviation / self.median
    }

    fn blurred(&self) -> f64 {
        self.deviation.max(BLUR * self.median)
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    values.sort_by(f64::total_cmp);
    let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
    f64::midpoint(low, high)
}

/// Returns the seconds between two moments, in either order.
fn seconds(from: u32, to: u32) -> f64 {
    f64::from(to.wrapping_sub(from) as i32) / 1000.0
}

#[cfg(test)]
mod tests;
