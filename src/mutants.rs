//! Bugs that are there on purpose, one at a time, to see that the tests find them.
//!
//! Without the feature `mutants` [`is_on`] is constantly false and nothing of this is left in the
//! program; with it, the environment names the one that is on. `tests/it/mutants.rs` turns on each of
//! them and says which test must fail.

/// Declares the mutants, and with the feature a list of them with their descriptions.
macro_rules! mutants {
    ($($(#[doc = $words:literal])+ $name:ident,)+) => {
        /// A bug of the kind that is made in practice, at the place where it would be made.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutant {
            $($(#[doc = $words])+ $name,)+
        }

        #[cfg(feature = "mutants")]
        impl Mutant {
            /// All of them, each with what it breaks.
            pub const ALL: &[(Self, &str)] = &[$((Self::$name, concat!($($words),+)),)+];
        }
    };
}

mutants! {
    /// Of events that arrive together the first is lost.
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
    /// A watch that is opened again begins at the present instead of where its client is.
    WindowSkipped,
    /// A reader that falls behind the window goes on where the window begins.
    SlowReaderSkips,
    /// A new list goes on with the window of events, though what led to it was never told.
    WindowOutlivesRelist,
    /// A list reuses an object of equal version though its bytes differ.
    EqualVersionsReused,
    /// A watch that goes on at another replica misses what that one knows already.
    SuccessorFromNow,
    /// A watch that goes on at another replica is told again what it was told before.
    SuccessorFromItsStart,
    /// The rights of a watch are looked at only when its reader has caught up.
    SlowReaderUnreviewed,
    /// Who follows a query is told to have seen everything after a part of it.
    CaughtUpTooSoon,
    /// An object that leaves a selection is not told as deleted.
    LeavingUntold,
    /// The events of a namespace are those of all namespaces.
    EventsOfOtherNamespaces,
    /// The mark at the end of the initial events is missing.
    InitialEventsEndMissing,
    /// Events pass through a WebSocket in binary messages.
    BinaryMessages,
    /// What a watch showed does not count for later reads.
    WatchTeachesNothing,
    /// Right after a change a document counts as settled.
    DocumentsSettleAtOnce,
    /// What was told one caller of discovery counts as told to all.
    CallersShareDocuments,
    /// A list's body is given again for a state it was not made from.
    StaleBody,
    /// A list ignores its label selector.
    LabelSelectorIgnored,
    /// A list ignores its field selector.
    FieldSelectorIgnored,
    /// A list of one namespace is that of all.
    NamespaceIgnored,
    /// A list carries the version of its newest item.
    VersionOfNewestItem,
    /// A list with a limit is answered whole.
    LimitIgnored,
    /// Who takes protobuf and nothing else is given JSON.
    ProtobufAnsweredInJson,
    /// A large answer is compressed for those who did not ask for it.
    GzipUnasked,
    /// A compressed answer has a gzip member for each of its chunks.
    GzipInMembers,
    /// A version that a read names itself is not awaited.
    VersionNotAwaited,
    /// A replica that proves nothing any more goes on answering.
    UnprovenAnswers,
    /// A watch that is silent while the collection moves on is believed to be complete.
    SilenceBelieved,
    /// The first events of a watch, which may be as old as the gap before it, prove the state new.
    GapProves,
    /// A list that may be as old as what was shown proves the state new.
    RelistProves,
    /// An etcd restored from a backup is not noticed.
    EpochUnnoticed,
    /// A quiet collection waits for its next bookmark, however many readers need it.
    NoCatchUp,
    /// The answer to a write teaches nothing if it is JSON.
    JsonWriteUnlearned,
    /// The answer to a write teaches nothing if it is protobuf.
    ProtobufWriteUnlearned,
    /// What a watch shows teaches nothing if it is protobuf.
    ProtobufWatchUnlearned,
    /// A write whose answer is lost leaves no barrier.
    BrokenWriteForgotten,
    /// An object known to be deleted may be shown.
    DeletionForgotten,
    /// What a session was shown in collections is forgotten.
    ShownForgotten,
    /// Whatever was shown, every read of the resource must reach its version.
    GlobalFloors,
    /// A replica answers before it had the last change that the session was shown.
    ClearedTooEarly,
    /// A list has its replica's version, though the query was listed at a later one.
    ListGoesBack,
    /// An older replica is believed to show as much without looking.
    DoubtsWavedThrough,
    /// A change that took an object out of a selection lets its old state be shown there.
    MovedObjectAges,
    /// What a forwarded list showed of objects that replicas do not show yet is forgotten.
    ListedObjectsUnexpected,
    /// What a forwarded list no longer showed may be shown again.
    LeavingUnexpected,
    /// A list that could not be read binds nobody.
    UnreadListForgotten,
    /// A write whose client went away after it was sent leaves no barrier.
    CancelledWriteForgotten,
    /// After a deletion the one of that name before it is taken for the next.
    PredecessorShown,
    /// A barrier is lifted by a read that was sent before the write.
    BarrierLiftedEarly,
    /// A read that was allowed to be old counts as consistent.
    RelaxedReadProves,
    /// A read shares a request that was sent before it came.
    OlderFlightJoined,
    /// Reads of different callers share one request.
    CallersShareFlight,
    /// What one caller may do, another is believed to be allowed.
    CallersShareReview,
    /// A stranger's request goes out in our own name.
    StrangerInOurName,
    /// A lease is held back like any other poll.
    LeasePaced,
    /// A poll is held back however soon its client gives up.
    TimeoutIgnored,
    /// A poll is refused without saying when to come again.
    NoRetryAfter,
    /// A poll that was held back is answered by what was held when it came.
    DecidedBeforeHold,
    /// A read is rewritten though it is only observed.
    ObservedRewritten,
    /// Somebody who asks the apiserver for patience is asked again as soon as others are answered.
    PushbackIgnored,
    /// A sidecar starts after the init containers that it should serve.
    SidecarLast,
    /// The address that leads to a sidecar comes after variables that refer to it.
    AddressLast,
    /// A proxy stands before the sidecar.
    ProxyNotExcepted,
    /// A sidecar runs as its own user where all others of its pod share one.
    SidecarAsItself,
    /// Containers that other webhooks add later go to the apiserver.
    LaterContainersForgotten,
    /// What was taken out of a pod does not come back into it.
    UndoForgets,
}

/// Whether this bug is to be there.
#[cfg(not(feature = "mutants"))]
pub const fn is_on(_: Mutant) -> bool {
    false
}

/// Whether this bug is to be there: whether [`VARIABLE`] names it.
#[cfg(feature = "mutants")]
pub fn is_on(mutant: Mutant) -> bool {
    static ON: std::sync::OnceLock<Option<Mutant>> = std::sync::OnceLock::new();
    *ON.get_or_init(named) == Some(mutant)
}

/// The environment variable that names the one mutant that is on.
#[cfg(feature = "mutants")]
pub const VARIABLE: &str = "LISTLESS_MUTANT";

#[cfg(feature = "mutants")]
fn named() -> Option<Mutant> {
    let name = std::env::var(VARIABLE).ok()?;
    let found = Mutant::ALL.iter().find(|(mutant, _)| format!("{mutant:?}") == name);
    Some(found.unwrap_or_else(|| panic!("{VARIABLE} names no mutant: {name}")).0)
}

#[cfg(all(feature = "mutants", not(debug_assertions)))]
compile_error!("the feature `mutants` is for tests: a release has no bugs on purpose");
