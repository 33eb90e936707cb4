//! The reasons why no replica answers a read.

/// The reason why no replica covers a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Absence {
    /// It was not read often enough.
    NotDemanded,
    /// The apiserver does not let Listless list or watch it.
    Refused {
        /// The HTTP status.
        code: u16,
    },
    /// Its replica, or one that was dropped recently, did not fit into the memory limit.
    OutOfMemory,
    /// The limit of replicas is reached.
    TooMany,
    /// The apiserver prints its lists in an unknown form.
    NotReplicable,
}
