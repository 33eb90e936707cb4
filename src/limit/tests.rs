use proptest::prelude::*;

use super::*;

const MILLISECOND: Duration = Duration::from_millis(1);

fn milliseconds(count: u64) -> Duration {
    Duration::from_millis(count)
}

#[test]
fn a_full_bucket_has_its_burst_and_then_one_token_each_interval() {
    let (rate, start) = (Rate::new(5.0, 20), Instant::now());
    let bucket = Bucket::full(start);
    for number in 0..20 {
        assert_eq!(bucket.take(&rate, start), Ok(()), "{number}");
    }
    assert_eq!(bucket.take(&rate, start), Err(milliseconds(200)));
    let almost = start + milliseconds(199);
    assert_eq!(bucket.take(&rate, almost), Err(MILLISECOND), "refusals cost nothing");
    assert_eq!(bucket.take(&rate, start + milliseconds(200)), Ok(()));
    assert_eq!(bucket.take(&rate, start + milliseconds(200)), Err(milliseconds(200)));
}

#[test]
fn a_returned_token_is_available_again() {
    let (rate, now) = (Rate::new(1.0, 1), Instant::now());
    let bucket = Bucket::full(now);
    assert_eq!(bucket.take(&rate, now), Ok(()));
    assert_eq!(bucket.take(&rate, now), Err(Duration::from_secs(1)));
    bucket.credit(&rate);
    assert_eq!(bucket.take(&rate, now), Ok(()));
}

#[test]
fn a_debt_is_at_most_one_token() {
    let (rate, now) = (Rate::new(5.0, 20), Instant::now());
    let bucket = Bucket::full(now);
    for _ in 0..300 {
        bucket.charge(&rate, now);
    }
    assert_eq!(bucket.take(&rate, now), Err(milliseconds(200)));
}

#[test]
fn later_requests_wait_for_the_same_token() {
    let (rate, start) = (Rate::new(5.0, 1), Instant::now());
    let bucket = Bucket::full(start);
    let patience = Duration::from_secs(2);
    assert_eq!(bucket.join(&rate, patience, start), Turn::Now);
    let released = start + milliseconds(200);
    assert_eq!(bucket.join(&rate, patience, start), Turn::At(released, WaiterPlace::First));
    for after in [1, 100, 199] {
        let turn = bucket.join(&rate, patience, start + milliseconds(after));
        assert_eq!(turn, Turn::At(released, WaiterPlace::Joined));
    }
    for _ in 0..4 {
        bucket.leave(&rate, released, Leaving::Answered, released);
    }
    // They used one token together: the next one is available an interval later.
    let next = Turn::At(released + milliseconds(200), WaiterPlace::First);
    assert_eq!(bucket.join(&rate, patience, released), next);
}

#[test]
fn the_token_of_a_group_that_left_is_returned() {
    let (rate, start) = (Rate::new(5.0, 1), Instant::now());
    let patience = Duration::from_secs(2);
    for leaving in [Leaving::Away, Leaving::Answered] {
        let bucket = Bucket::full(start);
        assert_eq!(bucket.join(&rate, patience, start), Turn::Now);
        let Turn::At(released, _) = bucket.join(&rate, patience, start) else { panic!("no wait") };
        bucket.join(&rate, patience, start);
        bucket.leave(&rate, released, leaving, start);
        bucket.leave(&rate, released, Leaving::Away, start);
        let taken = bucket.take(&rate, released);
        assert_eq!(taken.is_ok(), leaving == Leaving::Away, "{taken:?}");
    }
}

#[test]
fn a_new_request_does_not_join_a_group_that_left() {
    let (rate, start) = (Rate::new(5.0, 1), Instant::now());
    let bucket = Bucket::full(start);
    let patience = Duration::from_secs(2);
    assert_eq!(bucket.join(&rate, patience, start), Turn::Now);
    let Turn::At(released, _) = bucket.join(&rate, patience, start) else { panic!("no wait") };
    let gone = start + milliseconds(50);
    bucket.leave(&rate, released, Leaving::Away, gone);
    assert_eq!(bucket.join(&rate, patience, gone), Turn::At(released, WaiterPlace::First));
}

#[test]
fn a_wait_ends_with_its_patience_and_leaves_no_debt() {
    let (rate, start) = (Rate::new(0.1, 1), Instant::now());
    let bucket = Bucket::full(start);
    let patience = Duration::from_secs(2);
    assert_eq!(bucket.join(&rate, patience, start), Turn::Now);
    let mut now = start;
    for _ in 0..4 {
        assert_eq!(bucket.join(&rate, patience, now), Turn::At(now + patience, WaiterPlace::First));
        now += patience;
        bucket.leave(&rate, now, Leaving::Answered, now);
    }
    // Eight seconds have passed: two are left of the ten that the one token needs.
    assert_eq!(bucket.take(&rate, now), Err(Duration::from_secs(2)));
}

#[test]
fn a_reservation_waits_for_its_turn_or_fails() {
    let (rate, now) = (Rate::new(10.0, 2), Instant::now());
    let bucket = Bucket::full(now);
    let patience = milliseconds(250);
    let waits: Vec<_> = (0..4).map(|_| bucket.reserve(&rate, patience, now)).collect();
    let expected = [0, 0, 100, 200].map(|wait| Ok(milliseconds(wait)));
    assert_eq!(waits, expected);
    for _ in 0..3 {
        assert_eq!(bucket.reserve(&rate, patience, now), Err(milliseconds(300)));
    }
    bucket.credit(&rate);
    assert_eq!(bucket.reserve(&rate, patience, now), Ok(milliseconds(200)));
}

proptest! {
    /// Checks that no time span has more tokens than its burst and rate, whatever the sequence.
    #[test]
    fn no_time_span_has_more_tokens_than_its_rate(
        per_second in 1_u32..200,
        burst in 1_u32..30,
        gaps in prop::collection::vec(0_u64..300, 1..300),
    ) {
        let (rate, start) = (Rate::new(f64::from(per_second), burst), Instant::now());
        let bucket = Bucket::full(start);
        let mut now = start;
        let mut taken = Vec::new();
        for gap in gaps {
            now += milliseconds(gap);
            if bucket.take(&rate, now).is_ok() {
                taken.push(now);
            }
        }
        for (first, from) in taken.iter().enumerate() {
            for (last, to) in taken.iter().enumerate().skip(first) {
                let earned = (*to - *from).as_nanos() / rate.interval().as_nanos();
                let allowed = u128::from(burst) + earned + 1;
                prop_assert!(((last - first) as u128) < allowed);
            }
        }
    }

    /// Checks that a request after the returned wait gets its token, and one a millisecond earlier
    /// does not.
    #[test]
    fn the_returned_wait_is_exactly_long_enough(
        per_second in 1_u32..100,
        burst in 1_u32..10,
        gaps in prop::collection::vec(0_u64..50, 1..100),
    ) {
        let (rate, start) = (Rate::new(f64::from(per_second), burst), Instant::now());
        let bucket = Bucket::full(start);
        let mut now = start;
        for gap in gaps {
            now += milliseconds(gap);
            if let Err(wait) = bucket.take(&rate, now) {
                prop_assert!(wait <= rate.interval());
                if let Some(before) = wait.checked_sub(Duration::from_nanos(1)) {
                    prop_assert!(bucket.take(&rate, now + before).is_err());
                }
                now += wait;
                prop_assert_eq!(bucket.take(&rate, now), Ok(()));
            }
        }
    }

    /// Checks that groups leave no more often than the rate allows, whatever their size and whoever
    /// leaves.
    #[test]
    fn a_group_of_waiters_costs_one_token(
        per_second in 1_u32..50,
        burst in 1_u32..5,
        arrivals in prop::collection::vec((0_u64..40, any::<bool>()), 1..300),
    ) {
        let (rate, start) = (Rate::new(f64::from(per_second), burst), Instant::now());
        let bucket = Bucket::full(start);
        let patience = Duration::from_secs(2);
        let (mut now, mut waiting) = (start, Vec::<(Instant, bool)>::new());
        let mut departures = Vec::new();
        for (gap, stays) in arrivals {
            now += milliseconds(gap);
            waiting.retain(|(released, stays)| {
                let due = *released <= now;
                if due {
                    let leaving = if *stays { Leaving::Answered } else { Leaving::Away };
                    bucket.leave(&rate, *released, leaving, now);
                    if *stays {
                        departures.push(*released);
                    }
                }
                !due
            });
            match bucket.join(&rate, patience, now) {
                Turn::Now => departures.push(now),
                Turn::At(released, _) => {
                    prop_assert!(released - now <= rate.interval().min(patience));
                    waiting.push((released, stays));
                }
            }
        }
        departures.sort();
        departures.dedup();
        let (first, last) = (departures[0], departures[departures.len() - 1]);
        let earned = (last - first).as_nanos() / rate.interval().as_nanos();
        prop_assert!(departures.len() as u128 <= u128::from(burst) + earned + 1);
    }
}
