//! The command line: arguments in, one command run, an exit code out.
//!
//! Exit codes: 0 done, 1 failed, 2 used wrongly (arguments, or a configuration file with its line and
//! field named). Answers go to standard output, everything else to standard error; only this module
//! and its parts print.

mod announce;
mod ask;
mod check;
mod configuration;
mod explain;
mod export;
mod inject;
mod kubeconfig;
mod log;
mod options;
mod probe;
mod report;
mod table;
mod tap;
mod top;

use std::{
    ffi::OsString,
    io::{self, Write},
    process::ExitCode,
};

use clap::{Parser, Subcommand};

use crate::{app, config, demo, error::Chain};

pub use announce::{Announcement, announce, reachable};
pub use check::CheckOptions;
pub use inject::InjectionOptions;
pub use kubeconfig::{Kubeconfig, KubeconfigError, token_of, write_kubeconfig};
pub use options::{
    GatewayOptions, InjectorOptions, KubeconfigOptions, LocalOptions, LogFormat, LogOptions,
    Output, ServingOptions, SidecarOptions,
};

/// LIST less: a caching proxy between Kubernetes clients and their apiserver.
#[derive(Debug, Parser)]
#[command(name = "listless", version, disable_help_subcommand = true, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    log: LogOptions,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve one context of a kubeconfig on this machine.
    Local(LocalOptions),
    /// Print what to export, so that clients go through a running Listless.
    Kubeconfig(export::Arguments),
    /// Serve many callers, each with a token of its own.
    Gateway(GatewayOptions),
    /// Serve the workload beside it in its pod.
    Sidecar(SidecarOptions),
    /// Tell by the exit code whether a Listless beside it has started, or lives.
    Probe(probe::Arguments),
    /// Put a sidecar into pods on their way into the cluster: a mutating webhook.
    Injector(Box<InjectorOptions>),
    /// Put a sidecar into the pods of manifests.
    Inject(inject::Arguments),
    /// Take the sidecar out of the pods of manifests.
    Uninject(inject::Files),
    /// Show what is saved: a simulated cluster, polled straight and through Listless.
    Demo(demo::Args),
    /// Show who asks a running Listless for what, live.
    Top(top::Arguments),
    /// Tell what a running Listless saved, who should be mended, and how.
    Report(report::Arguments),
    /// Tell what would happen to a request, and why.
    Explain(explain::Arguments),
    /// Show the requests that a running Listless answers, as they come.
    Tap(tap::Arguments),
    /// Tell what stands in the way in a cluster: versions, rights, the webhook, injected pods.
    Check(CheckOptions),
    /// Print or check configuration files.
    #[command(subcommand)]
    Config(configuration::Command),
}

/// Something used wrongly, beyond what the parser of arguments can see.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

const FAILED: u8 = 1;
const USED_WRONGLY: u8 = 2;

/// Runs the command that the arguments (the first being the program's name) ask for.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Nobody is left to tell when even this cannot be written.
            let _unwritten = error.print();
            return if error.use_stderr() {
                ExitCode::from(USED_WRONGLY)
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    match dispatch(cli, &arguments) {
        Ok(code) => code,
        Err(error) => {
            let _unwritten = writeln!(io::stderr(), "{}", told(&error));
            ExitCode::from(exit_code(&error))
        }
    }
}

fn dispatch(cli: Cli, arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    // The demo's table is what people look at.
    let level = if matches!(cli.command, Command::Demo(_)) { "error" } else { "info" };
    log::start(&cli.log, level)?;
    match cli.command {
        Command::Local(options) => {
            if app::local(&options)? == app::Ended::Switched {
                return Err(start_again(arguments));
            }
        }
        Command::Kubeconfig(arguments) => export::run(&arguments)?,
        Command::Gateway(options) => app::gateway(&options)?,
        Command::Sidecar(options) => return app::sidecar(&options, &arguments[1..]),
        Command::Probe(arguments) => probe::run(&arguments)?,
        Command::Injector(options) => app::injector(&options)?,
        Command::Inject(arguments) => inject::inject(&arguments)?,
        Command::Uninject(files) => inject::uninject(&files)?,
        Command::Demo(args) => return demo::run(&args),
        Command::Top(arguments) => top::run(&arguments)?,
        Command::Report(arguments) => report::run(&arguments)?,
        Command::Explain(arguments) => explain::run(&arguments)?,
        Command::Tap(arguments) => tap::run(&arguments)?,
        Command::Check(options) => return check::run(&options),
        Command::Config(command) => configuration::run(&command)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Takes this process's place, with the same arguments; comes back only if that cannot be done.
#[cfg(unix)]
fn start_again(arguments: &[OsString]) -> anyhow::Error {
    use std::os::unix::process::CommandExt;
    let program = std::env::current_exe();
    let failed = match program {
        Ok(program) => std::process::Command::new(program).args(&arguments[1..]).exec(),
        Err(error) => error,
    };
    anyhow::Error::new(failed).context("the other context cannot be served")
}

/// Nothing takes a process's place here: who started it must do so again.
#[cfg(not(unix))]
fn start_again(_arguments: &[OsString]) -> anyhow::Error {
    anyhow::anyhow!("another context is to be served: start again")
}

/// Prints an answer; a reader that has had enough, such as `head`, is no failure.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// What went wrong with all its causes: one line, or one per problem of a file.
fn told(error: &anyhow::Error) -> String {
    match error.downcast_ref::<config::Error>() {
        Some(config::Error::Invalid { .. }) => error.to_string(),
        _ => format!("listless: {}", Chain(error.as_ref())),
    }
}

fn exit_code(error: &anyhow::Error) -> u8 {
    let used_wrongly =
        error.chain().any(|cause| cause.is::<UsageError>() || cause.is::<config::Error>());
    if used_wrongly { USED_WRONGLY } else { FAILED }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_do_not_contradict_each_other() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_bad_configuration_is_wrong_use_and_a_bad_network_is_not() {
        let error = config::Config::from_bytes("c.yaml".as_ref(), b"").unwrap_err();
        let error = anyhow::Error::from(error);
        assert_eq!(exit_code(&error), USED_WRONGLY);
        assert!(told(&error).starts_with("c.yaml:1:1: the file is empty"), "{}", told(&error));
        let error = anyhow::Error::from(io::Error::other("reset")).context("no answer");
        assert_eq!(
            (exit_code(&error), told(&error).as_str()),
            (FAILED, "listless: no answer: reset")
        );
    }
}
