//! The `listless` command.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// The allocator. musl's, with one lock for all threads, would be that of the image.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    listless::cli::run(std::env::args_os())
}
