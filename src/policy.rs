//! Compiled rules: how each resource may be cached. Pure.
