//! Synthetic pollers with jitter and noise, on few or many connections.

use proptest::prelude::*;

use super::*;

/// The arrival pattern of some pollers.
#[derive(Clone, Copy, Debug)]
struct Crowd {
    askers: usize,
    seconds: f64,
    /// The maximum variation of each wait, as a fraction.
    jitter: f64,
    start: Start,
    connections: Connections,
    /// The random requests per request of a poller.
    noise: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// At random times.
    ByChance,
    /// All at once.
    Together,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connections {
    /// One for all.
    Shared,
    /// One for each.
    Own,
    /// Any free one of a few.
    Pooled(u16),
    /// A new one for each request.
    New,
}

/// Random numbers from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

impl Crowd {
    /// Returns the last `count` requests.
    fn arrivals(self, count: usize, seed: u64) -> Vec<Arrival> {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        (0..8).for_each(|_| {
            dice.roll();
        });
        let until = self.seconds * (count as f64 / self.askers as f64 + 2.0);
        let mut requests: Vec<(f64, u16)> = Vec::new();
        for asker in 0..self.askers {
            let spread = if self.start == Start::Together { 0.01 } else { 1.0 };
            let mut at = dice.roll() * spread * self.seconds;
            while at < until {
                requests.push((at, asker as u16 + 1));
                at += self.seconds * (1.0 + self.jitter * (2.0 * dice.roll() - 1.0));
            }
        }
        // The number is fixed, because a random one could leave nothing but noise.
        let strangers = (requests.len() as f64 * self.noise) as usize;
        requests.extend((0..strangers).map(|_| {
            let at = dice.roll() * until;
            (at, 500 + (dice.roll() * 50.0) as u16)
        }));
        requests.sort_by(|a, b| a.0.total_cmp(&b.0));
        let late = requests.split_off(requests.len().saturating_sub(count));
        let numbered = late.into_iter().zip(1_u16..);
        numbered
            .map(|((at, asker), number)| Arrival {
                at: (at * 1000.0) as u32,
                value: 7,
                client: match self.connections {
                    Connections::Shared => 1,
                    Connections::Own => asker,
                    Connections::Pooled(size) => (dice.roll() * f64::from(size)) as u16,
                    Connections::New => number,
                },
            })
            .collect()
    }

    fn found(self, count: usize, seed: u64) -> Option<Period> {
        let arrivals = self.arrivals(count, seed);
        let gaps: Vec<u32> =
            arrivals.windows(2).map(|pair| pair[1].at.wrapping_sub(pair[0].at)).collect();
        find(&arrivals, &gaps[gaps.len().saturating_sub(64)..])
    }
}

const ONE: Crowd = Crowd {
    askers: 1,
    seconds: 3.0,
    jitter: 0.0,
    start: Start::ByChance,
    connections: Connections::Shared,
    noise: 0.0,
};

fn is_about(found: Option<Period>, seconds: f64) -> bool {
    found.is_some_and(|period| (period.seconds / seconds - 1.0).abs() <= 0.1)
}

/// Returns this many askers on one connection, each starting a little later than the one before.
fn one_after_the_other(askers: u32, step: u32, period: u32, jitter: u32) -> Option<Period> {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut late = || (dice.roll() * f64::from(jitter)) as u32;
    let asked = (0..12).flat_map(|round| (0..askers).map(move |asker| (round, asker)));
    let arrivals: Vec<Arrival> = asked
        .map(|(round, asker)| round * period + asker * step + late())
        .map(|at| Arrival { at, value: 7, client: 1 })
        .collect();
    let gaps: Vec<u32> = arrivals.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
    find(&arrivals, &gaps[gaps.len() - 64..])
}

#[test]
fn askers_in_turn_are_not_taken_for_one_fast_asker() {
    for jitter in [0, 10, 30] {
        let found = one_after_the_other(20, 137, 3000, jitter);
        assert!(is_about(found, 3.0), "{jitter}: {found:?}");
        let separation = found.map(|period| period.separation);
        assert_eq!(separation, Some(Separation::ByPattern(20)), "{jitter}");
    }
    // No wait is longer than the others: that is one asker.
    assert!(is_about(one_after_the_other(20, 150, 3000, 0), 0.15));
}

#[test]
fn threads_spread_over_the_period_are_not_taken_for_one_fast_asker() {
    // Threads that rest equally long after each response arrive like this, on a few connections.
    for pool in [4_u32, 7, 9] {
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15 + u64::from(pool));
        let phases: Vec<f64> =
            (0..20).map(|asker| f64::from(asker) * 160.0 + dice.roll() * 80.0).collect();
        let asked = (0..18).flat_map(|round| phases.iter().map(move |phase| (round, phase)));
        let mut times: Vec<u32> = asked
            .map(|(round, phase)| (f64::from(round) * 3200.0 + phase + dice.roll() * 8.0) as u32)
            .collect();
        times.sort_unstable();
        let arrivals: Vec<Arrival> = times
            .into_iter()
            .map(|at| Arrival { at, value: 7, client: (dice.roll() * f64::from(pool)) as u16 })
            .collect();
        let gaps: Vec<u32> = arrivals.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
        let gaps = &gaps[gaps.len() - 128..];
        assert!(
            by_value(gaps).is_some_and(|period| period.seconds < 0.3),
            "they look like one asker"
        );
        let found = find(&arrivals, gaps);
        assert!(is_about(found, 3.2), "{pool}: {found:?}");
    }
}

#[test]
fn rare_clients_do_not_hide_those_that_poll_every_second() {
    let of = |client, seconds: std::ops::Range<u32>, every: usize| {
        let at = seconds.step_by(every).map(move |second| second * 1000 + u32::from(client) * 20);
        at.map(move |at| Arrival { at, value: 7, client })
    };
    let pollers = (1..=6).flat_map(|client| of(client, 0..180, 3));
    let strangers = (10..=30).flat_map(|client| of(client, u32::from(client)..180, 140));
    let mut arrivals: Vec<Arrival> = pollers.chain(strangers).collect();
    arrivals.sort_by_key(|arrival| arrival.at);
    let found = plain(&arrivals, &[]);
    assert!(is_about(found, 3.0), "{found:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn one_asker_is_found_with_jitter_and_noise(
        seed in any::<u64>(),
        seconds in 0.05..3600.0,
        jitter in 0.0..0.1,
        noise in 0.0..0.15,
        count in 30_usize..200,
    ) {
        let crowd = Crowd { seconds, jitter, noise, ..ONE };
        let found = crowd.found(count, seed);
        prop_assert!(is_about(found, seconds), "{crowd:?}: {found:?}");
    }

    #[test]
    fn many_askers_with_their_own_connections_are_separated(
        seed in any::<u64>(),
        askers in 2_usize..60,
        jitter in 0.0..0.1,
        noise in 0.0..0.15,
    ) {
        let crowd = Crowd { askers, jitter, noise, connections: Connections::Own, ..ONE };
        let found = crowd.found(384, seed);
        prop_assert!(is_about(found, 3.0), "{crowd:?}: {found:?}");
    }

    #[test]
    fn simultaneous_askers_are_found_by_their_bursts(
        seed in any::<u64>(),
        askers in 3_usize..60,
        connections in prop_oneof![
            Just(Connections::Shared), Just(Connections::Pooled(4)), Just(Connections::New),
        ],
    ) {
        let crowd = Crowd { askers, jitter: 0.002, start: Start::Together, connections, ..ONE };
        let found = crowd.found(384, seed);
        prop_assert!(is_about(found, 3.0), "{crowd:?}: {found:?}");
    }
}

/// The number of crowds of each kind.
const CROWDS: u64 = 12;

/// Returns the numbers of correct, wrong and missing results.
fn tried(crowd: Crowd, count: usize) -> (usize, usize, usize) {
    let found: Vec<_> = (1..=CROWDS).map(|seed| crowd.found(count, seed)).collect();
    let right = found.iter().filter(|found| is_about(**found, crowd.seconds)).count();
    let nothing = found.iter().filter(|found| found.is_none()).count();
    (right, found.len() - right - nothing, nothing)
}

#[test]
fn twenty_on_one_connection_are_found_or_nothing_is_reported() {
    for connections in [Connections::Shared, Connections::Pooled(6)] {
        for (jitter, right_min) in [(0.002, 10), (0.02, 10), (0.1, 6)] {
            let crowd = Crowd { askers: 20, jitter, connections, ..ONE };
            let (right, wrong, nothing) = tried(crowd, 256);
            let separation = format!("{crowd:?}: {right} right, {wrong} wrong, {nothing} unknown");
            assert!(right >= right_min && wrong <= 1, "{separation}");
        }
    }
}

#[test]
fn noise_among_twenty_hides_the_period_but_never_changes_it() {
    for connections in [Connections::Shared, Connections::Pooled(6)] {
        let crowd = Crowd { askers: 20, jitter: 0.01, noise: 0.2, connections, ..ONE };
        let (right, wrong, _) = tried(crowd, 256);
        assert!(wrong <= 2 && right > wrong, "{right} right, {wrong} wrong");
    }
}

#[test]
fn random_arrivals_have_no_period() {
    let mut periods = 0;
    for seed in 1..=50 {
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed) | 1);
        let mut at = 0.0;
        let arrivals: Vec<Arrival> = (0..200)
            .map(|_| {
                at -= (1.0 - dice.roll()).ln();
                let client = (dice.roll() * 5.0) as u16;
                Arrival { at: (at * 1000.0) as u32, value: 7, client }
            })
            .collect();
        let gaps: Vec<u32> = arrivals.windows(2).map(|two| two[1].at - two[0].at).collect();
        periods += usize::from(find(&arrivals, &gaps[gaps.len() - 64..]).is_some());
    }
    assert!(periods <= 4, "{periods} of 50");
}

#[test]
fn a_few_requests_are_not_a_period() {
    assert_eq!(find(&[], &[]), None);
    assert_eq!(ONE.found(3, 1), None);
}
