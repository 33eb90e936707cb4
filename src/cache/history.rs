//! The window of recent events of one replica. Pure.
