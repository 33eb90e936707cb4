//! The `listless` command.

fn main() {}
