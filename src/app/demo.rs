//! `listless demo`, on a runtime of its own.

use std::process::ExitCode;

use super::local::runtime;
use crate::demo::{self, Args};

/// Runs the demo and tells how it went.
pub fn demo(args: Args) -> anyhow::Result<ExitCode> {
    runtime("demo", None)?.block_on(demo::run(args))
}
