//! The `listless` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    listless::cli::run(std::env::args_os())
}
