//! Every deliberate bug is found by an existing test. `.ci/mutants` adds this file to the tests of
//! its copy.
//!
//! Each mutant runs in its own process. That process is this same program, run with the tests that
//! must find the mutant. A mutant may panic, hang or spoil state that a process shares. First all
//! tests run without a mutant.

use std::{
    collections::BTreeSet,
    env,
    process::Stdio,
    time::{Duration, Instant},
};

use futures_util::{StreamExt, stream};
use listless::mutants::{Mutant, VARIABLE};
use tokio::{process::Command, time::timeout};

/// The result of the tests with a mutant, or without one.
struct Run {
    mutant: Option<Mutant>,
    passed: usize,
    /// The tests that found it.
    failed: Vec<String>,
    /// The seed of the random model that shows it.
    seed: Option<u64>,
    took: Duration,
}

/// Mutants, and the tests that must find each of them.
type Row = (&'static [Mutant], &'static [&'static str]);

/// The number of processes that run at a time.
const PARALLEL: usize = 2;

/// The limit on a run, even on a busy machine; a run that hangs finds nothing.
const RUN_MAX: Duration = Duration::from_secs(300);

/// Seeds of the random model that are tried for each mutant.
const SEEDS: &str = "20";

const MODEL: &str = "freshness::model::no_answer_is_older_than_promised_and_none_is_lost";

/// The most general tests first.
const FINDERS: &[Row] = &[
    (
        &[
            Mutant::LostEvent,
            Mutant::EventsSwapped,
            Mutant::WindowOffByOne,
            Mutant::WindowSkipped,
            Mutant::LeavingUntold,
            Mutant::EventsOfOtherNamespaces,
            Mutant::InitialEventsEndMissing,
        ],
        &["watches::local::every_selection_from_every_start_gets_the_apiservers_events"],
    ),
    (
        &[
            Mutant::LostDeletion,
            Mutant::StaleBody,
            Mutant::IndexUnchanged,
            Mutant::LabelSelectorIgnored,
            Mutant::FieldSelectorIgnored,
            Mutant::NamespaceIgnored,
        ],
        &["reads::exact::answers_follow_writes_of_others_and_stay_exact"],
    ),
    (
        &[
            Mutant::LostEvent,
            Mutant::LostDeletion,
            Mutant::EventsSwapped,
            Mutant::WindowOffByOne,
            Mutant::JsonWriteUnlearned,
            Mutant::ShownForgotten,
            Mutant::ListGoesBack,
        ],
        &[MODEL],
    ),
    (
        &[Mutant::LostEvent, Mutant::LostDeletion, Mutant::NeighbourRemoved],
        &["consistency::replicas_that_follow_what_others_write_never_differ"],
    ),
    (
        &[Mutant::JsonWriteUnlearned, Mutant::DeletionForgotten],
        &["freshness::writes::a_namespace_that_is_deleted_stays_deleted"],
    ),
    (
        &[Mutant::BrokenWriteForgotten],
        &["freshness::writes::a_write_whose_answer_is_lost_is_assumed_to_have_happened"],
    ),
    (&[Mutant::GapProves], &["faults::a_late_event_does_not_prove_memory_fresh"]),
    (&[Mutant::RelistProves], &["faults::a_stale_relist_does_not_prove_memory_fresh"]),
    (
        &[Mutant::EqualVersionsReused],
        &["reads::schemas::a_relist_replaces_bytes_that_differ_at_equal_versions"],
    ),
    (
        &[Mutant::SuccessorFromItsStart],
        &["watches::widening::watches_continue_without_a_gap_when_their_replica_is_widened"],
    ),
    (
        &[Mutant::ListUncompared],
        &["freshness::monotonic::a_replica_that_comes_late_is_compared_with_the_list_shown_before"],
    ),
    (
        &[Mutant::ShownForgotten, Mutant::ClearedTooEarly, Mutant::DoubtsWavedThrough],
        &["freshness::content::state_shown_by_one_replica_is_shown_by_others"],
    ),
    (
        &[Mutant::ListedObjectsUnexpected],
        &["freshness::monotonic::memory_is_not_older_than_what_the_apiserver_showed"],
    ),
    (
        &[Mutant::LeavingUnexpected],
        &["freshness::content::an_object_missing_from_a_list_is_not_shown_again"],
    ),
    (
        &[Mutant::ListGoesBack],
        &["freshness::mixed::a_list_is_as_new_as_the_last_of_its_query_in_any_form"],
    ),
    (
        &[Mutant::OtherFormsUnbound],
        &["forms::protobuf::a_version_shown_in_one_form_binds_the_other"],
    ),
    (
        &[Mutant::MovedObjectAges],
        &["freshness::content::an_object_that_left_a_selection_is_not_shown_in_it"],
    ),
    (
        &[Mutant::PredecessorShown],
        &["freshness::content::a_deleted_object_does_not_bring_back_its_predecessor"],
    ),
    (
        &[Mutant::UnreadListForgotten],
        &["freshness::content::a_truncated_list_sets_a_floor_for_its_scope"],
    ),
    (
        &[Mutant::GlobalFloors],
        &["freshness::mixed::mixed_readers_of_quiet_objects_are_answered_from_memory"],
    ),
    (
        &[Mutant::CancelledWriteForgotten],
        &["freshness::writes::a_client_that_goes_away_during_its_write_still_reads_it_later"],
    ),
    (
        &[Mutant::SuccessorFromNow],
        &["watches::widening::a_slow_watch_finishes_its_window_before_it_switches"],
    ),
    (
        &[Mutant::SlowReaderUnreviewed],
        &["callers::rights::a_slow_reader_gets_no_event_from_ten_seconds_after_its_rights_ended"],
    ),
    (
        &[Mutant::BarrierLiftedEarly],
        &["freshness::monotonic::a_list_that_was_sent_before_a_write_does_not_prove_it"],
    ),
    (
        &[Mutant::RelaxedReadProves],
        &["freshness::monotonic::a_list_that_was_allowed_to_be_old_proves_nothing"],
    ),
    (
        &[Mutant::WindowClaimsTooMuch, Mutant::SlowReaderSkips],
        &["watches::local::a_slow_watcher_is_ended_cleanly_and_resumes_at_the_apiserver"],
    ),
    (
        &[Mutant::UnprovenAnswers, Mutant::SilenceBelieved],
        &["faults::a_silent_watch_proves_nothing_after_ninety_seconds_and_is_replaced"],
    ),
    (
        &[Mutant::WindowOutlivesRelist],
        &["watches::local::a_relist_ends_a_watch_and_the_next_one_is_forwarded"],
    ),
    (
        &[Mutant::CaughtUpTooSoon],
        &["watches::local::an_event_after_many_unselected_ones_is_sent_at_once"],
    ),
    (
        &[Mutant::DocumentsSettleAtOnce],
        &[
            "discovery::changes::a_new_definition_is_seen_as_soon_as_directly_even_from_a_slow_apiserver",
        ],
    ),
    (
        &[Mutant::CallersShareDocuments],
        &["discovery::callers::a_document_is_confirmed_for_each_bearer_before_it_is_served"],
    ),
    (
        &[Mutant::BinaryMessages],
        &["watches::websocket::pings_are_answered_and_either_side_may_close"],
    ),
    (
        &[Mutant::WatchTeachesNothing],
        &["watches::local::no_later_read_is_older_than_the_events_of_a_watch"],
    ),
    (
        &[Mutant::VersionOfNewestItem],
        &["reads::versions::bookmarks_advance_the_version_of_a_quiet_collection"],
    ),
    (
        &[Mutant::AgeOffByOne, Mutant::AgeNotRemade],
        &["tables::ages::an_age_is_that_of_the_moment_of_the_answer"],
    ),
    (&[Mutant::ColumnsMissing], &["tables::reads::lists_and_objects_equal_the_apiservers_own"]),
    (
        &[Mutant::UnprovenCellAnswered],
        &["tables::ages::a_row_with_an_unproven_cell_is_forwarded_and_counted"],
    ),
    (&[Mutant::LimitIgnored], &["reads::versions::a_limit_applies_except_at_version_zero"]),
    (
        &[Mutant::TokenOffByOne, Mutant::TokenOfOldestItem, Mutant::RemainingOffByOne],
        &["pages::walks::every_page_and_token_is_the_apiservers"],
    ),
    (
        &[Mutant::PageOfNewerState],
        &["pages::walks::later_pages_show_the_version_of_the_first_while_objects_change"],
    ),
    (
        &[
            Mutant::ProtobufAnsweredInJson,
            Mutant::EnvelopeOfOtherVersion,
            Mutant::ProtobufLabelsIgnored,
        ],
        &["forms::protobuf::lists_objects_and_absences_equal_the_apiservers_own"],
    ),
    (
        &[Mutant::StaleVersionOfLeaving],
        &["forms::protobuf::every_selection_from_every_start_gets_the_apiservers_events"],
    ),
    (
        &[Mutant::EmptyTextsOmitted],
        &["forms::protobuf::metadata_of_custom_resources_is_encoded_as_the_apiservers_own"],
    ),
    (
        &[Mutant::MessageKeepsLength],
        &["watches::websocket::websocket_messages_in_protobuf_equal_the_apiservers"],
    ),
    (&[Mutant::GzipUnasked], &["reads::negotiation::gzip_is_sent_only_to_clients_that_accept_it"]),
    (
        &[Mutant::GzipInMembers],
        &["reads::negotiation::a_large_list_is_one_gzip_member_for_clients_that_accept_gzip"],
    ),
    (
        &[Mutant::SegmentKept, Mutant::SegmentOfOtherContext, Mutant::ListCarriedOver],
        &["reads::compressed::a_changing_list_is_one_gzip_member_in_every_form"],
    ),
    (&[Mutant::VersionNotAwaited], &["reads::versions::list_not_older_than_waits_for_the_cache"]),
    (
        &[Mutant::EpochUnnoticed],
        &["faults::restore::a_restored_etcd_backup_resets_replicas_and_sessions"],
    ),
    (
        &[Mutant::LeftIsItsList],
        &["freshness::monotonic::lists_do_not_go_back_after_a_get_of_an_object_that_left_one"],
    ),
    (
        &[Mutant::NoCatchUp],
        &["reads::versions::a_quiet_collection_catches_up_in_seconds_when_reads_need_it"],
    ),
    (
        &[Mutant::ProtobufWriteUnlearned],
        &["freshness::protobuf::a_create_in_protobuf_is_shown_and_other_objects_stay_in_memory"],
    ),
    (
        &[Mutant::ProtobufWatchUnlearned],
        &["freshness::protobuf::no_later_read_is_older_than_events_of_a_protobuf_watch"],
    ),
    (
        &[Mutant::OlderFlightJoined],
        &["coalescing::a_read_never_shares_a_request_that_was_sent_before_it_came"],
    ),
    (
        &[Mutant::CallersShareFlight],
        &["callers::leaks::only_reads_with_the_same_token_share_a_request"],
    ),
    (
        &[Mutant::CallersShareReview],
        &["callers::rights::unauthorized_callers_get_the_apiservers_refusal"],
    ),
    (&[Mutant::LeasePaced], &["polls::exempt_requests_never_wait"]),
    (&[Mutant::TimeoutIgnored], &["polls::no_poll_waits_near_its_own_timeout"]),
    (&[Mutant::NoRetryAfter], &["polls::a_refused_poll_gets_a_status_with_retry_after"]),
    (&[Mutant::DecidedBeforeHold], &["polls::a_delayed_poll_shows_changes_made_meanwhile"]),
    (
        &[Mutant::ObservedRewritten],
        &["observe::observe_mode_changes_no_byte_of_requests_and_responses"],
    ),
    (
        &[Mutant::PushbackIgnored],
        &["polls::replicas_honour_retry_after_even_if_others_are_answered"],
    ),
    (
        &[
            Mutant::SidecarLast,
            Mutant::AddressLast,
            Mutant::ProxyNotExcepted,
            Mutant::SidecarAsItself,
            Mutant::LaterContainersForgotten,
        ],
        &["injection::corpus::every_pod_of_the_corpus_has_its_expected_result"],
    ),
    (
        &[Mutant::UndoForgets],
        &["injection::corpus::an_injected_pod_needs_no_change_and_can_be_restored"],
    ),
    (
        &[Mutant::StrangerInOurName],
        &["forwarding::identities::a_caller_without_credentials_is_forwarded_without_any"],
    ),
];

#[tokio::test]
async fn every_mutant_is_found_by_a_test() {
    let clean = Run::of(None, &finders_of_all()).await;
    assert!(clean.failed.is_empty(), "without a mutant fail: {:?}", clean.failed);
    assert_eq!(clean.passed, finders_of_all().len(), "a test is not there, or took too long");
    let runs = stream::iter(Mutant::ALL)
        .map(|mutant| async { Run::of(Some(*mutant), &finders(*mutant)).await });
    let runs: Vec<Run> =
        runs.buffered(PARALLEL).inspect(|run| println!("{}", run.line())).collect().await;
    let missed: Vec<_> = runs
        .iter()
        .filter_map(|run| run.mutant.filter(|it| run.failed.len() < finders(*it).len()))
        .collect();
    println!("proof: mutants: {} of {} caught", runs.len() - missed.len(), runs.len());
    assert!(missed.is_empty(), "nothing finds {missed:?}");
}

/// The tests that must find a mutant.
fn finders(mutant: Mutant) -> Vec<&'static str> {
    let rows = FINDERS.iter().filter(|(mutants, _)| mutants.contains(&mutant));
    rows.flat_map(|(_, tests)| tests.iter().copied()).collect()
}

fn finders_of_all() -> Vec<&'static str> {
    let all: BTreeSet<&str> = FINDERS.iter().flat_map(|(_, tests)| tests.iter().copied()).collect();
    all.into_iter().collect()
}

// === impl Run ===

impl Run {
    /// Runs tests with a mutant in a process of their own.
    async fn of(mutant: Option<Mutant>, tests: &[&str]) -> Self {
        let mut command = Command::new(env::current_exe().expect("this program"));
        command.arg("--exact").args(tests).stdin(Stdio::null()).kill_on_drop(true);
        command.env_remove(VARIABLE).env_remove("LISTLESS_SEED").env("RUST_BACKTRACE", "0");
        if let Some(mutant) = mutant {
            command.env(VARIABLE, format!("{mutant:?}")).env("LISTLESS_RUNS", SEEDS);
            command.arg("--test-threads=1");
        }
        let started = Instant::now();
        let output = timeout(RUN_MAX, command.output()).await;
        let took = started.elapsed();
        let text = match output {
            Ok(output) => String::from_utf8_lossy(&output.expect("it starts").stdout).into_owned(),
            Err(_) => String::new(),
        };
        let ended = |how: &str| {
            let tests =
                text.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(how));
            tests.map(str::to_owned).collect::<Vec<_>>()
        };
        let seed = text
            .split_once("LISTLESS_SEED=")
            .map(|(_, rest)| rest.chars().take_while(char::is_ascii_digit).collect::<String>());
        Self {
            mutant,
            passed: ended(" ... ok").len(),
            failed: ended(" ... FAILED"),
            seed: seed.and_then(|seed| seed.parse().ok()),
            took,
        }
    }

    /// A line of the table.
    fn line(&self) -> String {
        let name = self.mutant.map(|mutant| format!("{mutant:?}")).unwrap_or_default();
        let finders = if self.failed.is_empty() { "NOTHING" } else { &self.failed.join(", ") };
        let seed = self.seed.map(|seed| format!(", seed {seed}")).unwrap_or_default();
        format!("{name:24} {:5.1} s  {finders}{seed}", self.took.as_secs_f64())
    }
}
