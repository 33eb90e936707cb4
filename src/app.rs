//! Builds every part in order, binds all listeners first, owns the end.
