//! Immutable snapshots of one query's objects. Pure.
