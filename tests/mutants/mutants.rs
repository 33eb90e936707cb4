//! Deliberate bugs, enabled one at a time, that the tests must find.
//!
//! The program contains none of them. `.ci/mutants` adds this file to a copy of the source as
//! `src/mutants.rs`, and applies the patches beside it. An environment variable names the enabled
//! bug. `runner.rs` enables each and names the test that must fail.

/// Declares the mutants and a list of them.
macro_rules! mutants {
    ($($(#[doc = $words:literal])+ $name:ident,)+) => {
        /// A realistic bug at the place where it would occur.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutant {
            $($(#[doc = $words])+ $name,)+
        }

        impl Mutant {
            /// All mutants.
            pub const ALL: &[Self] = &[$(Self::$name,)+];
        }
    };
}

/// The environment variable that names the one enabled mutant.
pub const VARIABLE: &str = "LISTLESS_MUTANT";

mutants! {
    /// The first of several events that arrive together is lost.
    LostEvent,
    /// A deletion is read and not applied.
    LostDeletion,
    /// A change to an object removes the next object of its page.
    NeighbourRemoved,
    /// An event is recorded before the one that precedes it.
    EventsSwapped,
    /// A watch begins with the event at its version instead of the next one.
    WindowOffByOne,
    /// Events leave the window, and it claims to begin where it did.
    WindowClaimsTooMuch,
    /// A reopened watch starts at the present instead of its client's version.
    WindowSkipped,
    /// A reader that falls behind the window resumes at the window's start.
    SlowReaderSkips,
    /// A new list keeps the old window of events, although the events between are missing.
    WindowOutlivesRelist,
    /// A list reuses an object of equal version although its bytes differ.
    EqualVersionsReused,
    /// A watch that moves to another replica misses the events that replica already has.
    SuccessorFromNow,
    /// A watch that moves to another replica repeats earlier events.
    SuccessorFromItsStart,
    /// The permission of a watch is checked only when its reader has caught up.
    SlowReaderUnreviewed,
    /// A follower of a query counts as caught up after a part of it.
    CaughtUpTooSoon,
    /// An object that leaves a selection is not sent as deleted.
    LeavingUntold,
    /// A watch of one namespace gets the events of all namespaces.
    EventsOfOtherNamespaces,
    /// The mark at the end of the initial events is missing.
    InitialEventsEndMissing,
    /// Events pass through a WebSocket in binary messages.
    BinaryMessages,
    /// A list that lacks an object counts as a version of the object.
    LeftIsItsList,
    /// Objects shown by a watch do not raise the floor of later reads.
    WatchTeachesNothing,
    /// A document counts as settled right after a change.
    DocumentsSettleAtOnce,
    /// A discovery document for one caller counts for all callers.
    CallersShareDocuments,
    /// A list's cached body is reused for another state.
    StaleBody,
    /// A changed label is not in the index.
    IndexUnchanged,
    /// A list ignores its label selector.
    LabelSelectorIgnored,
    /// A list ignores its field selector.
    FieldSelectorIgnored,
    /// A list of one namespace returns all namespaces.
    NamespaceIgnored,
    /// A list carries the version of its newest item.
    VersionOfNewestItem,
    /// A list with a limit returns all items.
    LimitIgnored,
    /// A continue token names the key after the last returned one.
    TokenOffByOne,
    /// A continue token names the version of an item.
    TokenOfOldestItem,
    /// A page counts one remaining object too many.
    RemainingOffByOne,
    /// A later page shows the newest state.
    PageOfNewerState,
    /// A client that accepts only protobuf gets JSON.
    ProtobufAnsweredInJson,
    /// The envelope of an object in protobuf has another version.
    EnvelopeOfOtherVersion,
    /// An object that leaves a selection is sent in protobuf at its earlier version.
    StaleVersionOfLeaving,
    /// A list in protobuf ignores its label selector.
    ProtobufLabelsIgnored,
    /// The metadata of a custom resource in protobuf lacks empty strings.
    EmptyTextsOmitted,
    /// A message in protobuf begins with the length of its event.
    MessageKeepsLength,
    /// A large response is compressed for a client that did not request it.
    GzipUnasked,
    /// A compressed response has a gzip member for each chunk.
    GzipInMembers,
    /// A compressed list has the segments of its earlier state.
    SegmentKept,
    /// A compressed list counts as unchanged though an event concerns it.
    ListCarriedOver,
    /// A segment is sent after another text than the one it was compressed after.
    SegmentOfOtherContext,
    /// An age in a Table is a second too high.
    AgeOffByOne,
    /// An age in a Table is the one that the row arrived with.
    AgeNotRemade,
    /// The columns of a Table are missing.
    ColumnsMissing,
    /// A Table contains a row with a cell that is not proven.
    UnprovenCellAnswered,
    /// A read does not wait for the version it names.
    VersionNotAwaited,
    /// A replica without proof of freshness still answers.
    UnprovenAnswers,
    /// A silent watch counts as complete although the collection changes.
    SilenceBelieved,
    /// The first events of a watch, which may be as old as the gap before it, count as proof.
    GapProves,
    /// A list that may be as old as the shown state counts as proof.
    RelistProves,
    /// An etcd restored from a backup is not noticed.
    EpochUnnoticed,
    /// A quiet collection waits for its next bookmark even if many readers need it.
    NoCatchUp,
    /// A write's JSON response does not raise the floor.
    JsonWriteUnlearned,
    /// A write's protobuf response does not raise the floor.
    ProtobufWriteUnlearned,
    /// A protobuf watch does not raise the floor.
    ProtobufWatchUnlearned,
    /// A write whose response is lost leaves no barrier.
    BrokenWriteForgotten,
    /// An object known to be deleted may be shown.
    DeletionForgotten,
    /// Objects shown to a session in collections are forgotten.
    ShownForgotten,
    /// Every read of the resource must reach the highest shown version.
    GlobalFloors,
    /// A replica answers before it has the last change that the session saw.
    ClearedTooEarly,
    /// A list has its replica's version, although the query was listed at a later one.
    ListGoesBack,
    /// An older replica is used without checking the shown objects.
    DoubtsWavedThrough,
    /// An older replica is used without comparing it with the shown list.
    ListUncompared,
    /// What was shown in one form is forgotten for replicas of the others.
    OtherFormsUnbound,
    /// An object that left a selection may be shown there in its old state.
    MovedObjectAges,
    /// Objects in a forwarded list that replicas lack are forgotten.
    ListedObjectsUnexpected,
    /// Objects missing from a forwarded list may be shown again.
    LeavingUnexpected,
    /// A list that could not be parsed raises no floor.
    UnreadListForgotten,
    /// A sent write whose client disconnected leaves no barrier.
    CancelledWriteForgotten,
    /// After a deletion, the earlier object of that name is taken for its successor.
    PredecessorShown,
    /// A read that was sent before the write lifts its barrier.
    BarrierLiftedEarly,
    /// A read that was allowed to be stale counts as consistent.
    RelaxedReadProves,
    /// A read joins a request that was sent before it arrived.
    OlderFlightJoined,
    /// Reads of different callers share one request.
    CallersShareFlight,
    /// One caller's permission counts for another caller.
    CallersShareReview,
    /// An unidentified caller's request uses Listless's own identity.
    StrangerInOurName,
    /// A lease read is throttled like any other poll.
    LeasePaced,
    /// A poll is throttled regardless of its client's timeout.
    TimeoutIgnored,
    /// A poll is refused without Retry-After.
    NoRetryAfter,
    /// A throttled poll is answered with the state of its arrival.
    DecidedBeforeHold,
    /// A read is rewritten in mode observe.
    ObservedRewritten,
    /// After a Retry-After of the apiserver, its next request goes out as soon as others are
    /// answered.
    PushbackIgnored,
    /// The sidecar starts after the init containers that it should serve.
    SidecarLast,
    /// The sidecar's address comes after variables that refer to it.
    AddressLast,
    /// An HTTP proxy is used for the sidecar.
    ProxyNotExcepted,
    /// The sidecar runs as its own user although all others of its pod share one.
    SidecarAsItself,
    /// Containers that other webhooks add later use the apiserver directly.
    LaterContainersForgotten,
    /// Removed parts of a pod are not restored.
    UndoForgets,
}

/// Reports whether this bug is enabled.
pub fn is_on(mutant: Mutant) -> bool {
    static ON: std::sync::OnceLock<Option<Mutant>> = std::sync::OnceLock::new();
    *ON.get_or_init(named) == Some(mutant)
}

fn named() -> Option<Mutant> {
    let name = std::env::var(VARIABLE).ok()?;
    let found = Mutant::ALL.iter().find(|mutant| format!("{mutant:?}") == name);
    Some(*found.unwrap_or_else(|| panic!("{VARIABLE} names no mutant: {name}")))
}
