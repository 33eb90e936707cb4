//! Every bug that is there on purpose is found by a test that is there anyway.
//!
//! Each mutant has a process of its own, this very program told to run the tests that must find it:
//! a mutant may panic, hang or spoil what a process shares. First all of them run without a mutant.

use std::{
    collections::BTreeSet,
    env,
    process::Stdio,
    time::{Duration, Instant},
};

use futures_util::{StreamExt, stream};
use listless::mutants::{Mutant, VARIABLE};
use tokio::{process::Command, time::timeout};

/// How the tests fared with a mutant, or without one.
struct Outcome {
    mutant: Option<Mutant>,
    passed: usize,
    /// Those that found it, in the order of their names.
    failed: Vec<String>,
    /// The seed of the random model that shows it.
    seed: Option<String>,
    took: Duration,
}

/// So many processes run at a time.
const PARALLEL: usize = 2;

/// No run of a few tests takes longer; one that hangs has found nothing.
const RUN_MAX: Duration = Duration::from_secs(120);

/// Seeds of the random model that are tried for each mutant.
const SEEDS: &str = "20";

/// The tests that must find a mutant; those of them that do are named in the table.
fn finders(mutant: Mutant) -> &'static [&'static str] {
    const WATCHES: &str =
        "watches::local::every_selection_from_every_start_is_told_what_the_apiserver_tells";
    const LISTS: &str =
        "reads::exact::whatever_a_wider_replica_covers_is_answered_in_the_apiservers_own_bytes";
    const MODEL: &str = "freshness::model::no_answer_is_older_than_promised_and_none_is_lost";
    const SLOW: &str =
        "watches::local::who_reads_too_slowly_is_cut_cleanly_and_goes_on_at_the_apiserver";
    const QUIET: &str =
        "faults::a_watch_without_news_stops_counting_after_ninety_seconds_and_is_replaced";
    match mutant {
        Mutant::LostEvent
        | Mutant::EventsSwapped
        | Mutant::WindowOffByOne
        | Mutant::WindowSkipped
        | Mutant::LeavingUntold
        | Mutant::EventsOfOtherNamespaces
        | Mutant::InitialEventsEndMissing => &[WATCHES],
        Mutant::WindowClaimsTooMuch | Mutant::SlowReaderSkips => &[SLOW],
        Mutant::WindowOutlivesRelist => &[
            "watches::local::a_relist_ends_a_watch_and_what_happened_meanwhile_is_the_apiservers_to_tell",
        ],
        Mutant::CaughtUpTooSoon => {
            &["watches::local::an_event_behind_many_that_are_not_selected_is_told_at_once"]
        }
        Mutant::BinaryMessages => {
            &["watches::websocket::messages_are_those_of_the_apiserver_and_cost_it_nothing"]
        }
        Mutant::WatchTeachesNothing => {
            &["watches::local::what_a_watch_showed_no_later_read_is_older_than"]
        }
        Mutant::LostDeletion
        | Mutant::StaleBody
        | Mutant::LabelSelectorIgnored
        | Mutant::FieldSelectorIgnored
        | Mutant::NamespaceIgnored
        | Mutant::VersionOfNewestItem => &[LISTS, MODEL],
        Mutant::LimitIgnored => &["reads::versions::a_limit_counts_except_at_version_zero"],
        Mutant::ProtobufAnsweredInJson => {
            &["reads::negotiation::only_what_memory_can_give_exactly_is_answered_from_memory"]
        }
        Mutant::GzipUnasked => &["reads::negotiation::nobody_gets_gzip_without_naming_it"],
        Mutant::GzipInMembers => {
            &["reads::negotiation::a_large_list_is_one_gzip_member_for_those_who_name_gzip"]
        }
        Mutant::VersionNotAwaited => {
            &["reads::versions::list_not_older_than_waits_for_the_replica"]
        }
        Mutant::UnprovenAnswers | Mutant::SilenceBelieved => &[QUIET, MODEL],
        Mutant::RelistBelowShown => &[MODEL],
        Mutant::EpochUnnoticed => {
            &["faults::after_etcd_was_restored_from_a_backup_everything_begins_anew"]
        }
        Mutant::NoCatchUp => {
            &["reads::versions::a_quiet_collection_catches_up_in_seconds_when_reads_need_it"]
        }
        Mutant::JsonWriteUnlearned
        | Mutant::BrokenWriteForgotten
        | Mutant::DeletionForgotten
        | Mutant::BarrierLiftedEarly
        | Mutant::RelaxedReadProves => &[MODEL],
        Mutant::ProtobufWriteUnlearned => {
            &["freshness::writes::a_read_after_any_write_shows_it_whatever_the_replica_has_heard"]
        }
        Mutant::OlderFlightJoined => {
            &["coalescing::a_read_never_shares_a_request_that_was_sent_before_it_came"]
        }
        Mutant::CallersShareFlight => {
            &["callers::leaks::only_reads_with_the_same_token_share_a_request"]
        }
        Mutant::CallersShareReview => {
            &["callers::rights::whoever_the_apiserver_does_not_allow_gets_its_own_refusal"]
        }
        Mutant::StrangerInOurName => &[
            "forwarding::identities::strangers_are_forwarded_with_their_own_credentials_and_never_answered_from_memory",
        ],
    }
}
