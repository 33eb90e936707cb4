//! The command line: parses arguments, runs one command, and returns an exit code.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage (arguments, or a configuration file with the line
//! and field named). Results go to standard output, everything else to standard error. Only this
//! module, its parts and the demo print.

mod announce;
mod ask;
mod check;
mod configuration;
mod explain;
mod export;
mod inject;
mod log;
mod probe;
mod progress;
mod report;
mod table;
mod tap;
mod top;

use std::{
    ffi::OsString,
    io::{self, Write},
    process::ExitCode,
};

use clap::{Parser, Subcommand, ValueEnum};

#[cfg(feature = "demo")]
use crate::demo;
use crate::{
    app::{
        self,
        options::{GatewayOptions, InjectorOptions, LocalOptions, SidecarOptions, UsageError},
    },
    config,
    error::Chain,
};

use announce::announce;
use log::LogOptions;

/// LISTless: a caching proxy between Kubernetes clients and their apiserver.
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
    /// Print the KUBECONFIG export that sends clients through a running Listless.
    Kubeconfig(export::Arguments),
    /// Serve many callers, each with a token of its own.
    Gateway(GatewayOptions),
    /// Serve the workload in the same pod.
    Sidecar(SidecarOptions),
    /// Report by the exit code whether a Listless in the same container has started, or is alive.
    Probe(probe::Arguments),
    /// Inject a sidecar into new pods: a mutating webhook.
    Injector(Box<InjectorOptions>),
    /// Inject a sidecar into the pods of manifests.
    Inject(inject::Arguments),
    /// Remove the sidecar from the pods of manifests.
    Uninject(inject::Files),
    /// Show the savings on a simulated cluster, polled directly and through Listless.
    #[cfg(feature = "demo")]
    Demo(demo::Args),
    /// Show the clients of a running Listless and their requests, live.
    Top(top::Arguments),
    /// Show what a running Listless saved and which clients to fix.
    Report(report::Arguments),
    /// Explain the outcome of a request.
    Explain(explain::Arguments),
    /// Show the requests that a running Listless answers, as they arrive.
    Tap(tap::Arguments),
    /// Run preflight checks on a cluster: versions, permissions, the webhook, injected pods.
    Check(check::Arguments),
    /// Print or check configuration files.
    #[command(subcommand)]
    Config(configuration::Command),
}

/// The output format of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Text for people.
    #[default]
    Table,
    /// JSON.
    Json,
}

const FAILED: u8 = 1;
const USED_WRONGLY: u8 = 2;

/// Runs the command of the arguments. The first argument is the program's name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // If this output fails, there is no other way to report it.
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
            let _unwritten = writeln!(io::stderr(), "{}", error_text(&error));
            ExitCode::from(exit_code(&error))
        }
    }
}

impl Command {
    /// Returns the log level that applies if none is set.
    fn log_level(&self) -> &'static str {
        match self {
            // Its output is a table.
            #[cfg(feature = "demo")]
            Self::Demo(_) => "error",
            _ => "info",
        }
    }
}

fn dispatch(cli: Cli, arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    log::start(&cli.log, cli.command.log_level())?;
    match cli.command {
        Command::Local(options) => {
            if app::local(&options, announce)? == app::Ended::Switched {
                return Err(start_again(arguments));
            }
        }
        Command::Kubeconfig(arguments) => export::run(&arguments)?,
        Command::Gateway(options) => app::gateway(&options, announce)?,
        Command::Sidecar(options) => return app::sidecar(&options, &arguments[1..], announce),
        Command::Probe(arguments) => probe::run(&arguments)?,
        Command::Injector(options) => app::injector(&options, announce)?,
        Command::Inject(arguments) => inject::inject(&arguments)?,
        Command::Uninject(files) => inject::uninject(&files)?,
        #[cfg(feature = "demo")]
        Command::Demo(args) => return demo::run(&args),
        Command::Top(arguments) => top::run(&arguments)?,
        Command::Report(arguments) => report::run(&arguments)?,
        Command::Explain(arguments) => explain::run(&arguments)?,
        Command::Tap(arguments) => tap::run(&arguments)?,
        Command::Check(arguments) => return check::run(&arguments),
        Command::Config(command) => configuration::run(&command)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Replaces this process by a new one with the same arguments. Returns only on failure.
#[cfg(unix)]
fn start_again(arguments: &[OsString]) -> anyhow::Error {
    use std::os::unix::process::CommandExt;
    let program = std::env::current_exe();
    let failed = match program {
        Ok(program) => {
            // Linux says so of a program that an upgrade has replaced.
            let text = program.to_string_lossy();
            let text = text.strip_suffix(" (deleted)").unwrap_or(&text);
            std::process::Command::new(text).args(&arguments[1..]).exec()
        }
        Err(error) => error,
    };
    anyhow::Error::new(failed).context("cannot serve the other context")
}

/// Returns an error: this platform cannot replace a process, so the caller must restart it.
#[cfg(not(unix))]
fn start_again(_arguments: &[OsString]) -> anyhow::Error {
    anyhow::anyhow!("the kubeconfig selects another context: restart listless")
}

/// Prints a result. A reader that closes the pipe early, such as `head`, is no failure.
pub fn print(text: &str) -> io::Result<()> {
    match write(text) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Prints a part of an output without end.
fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// Formats an error with all its causes: one line, or one per problem of a file.
fn error_text(error: &anyhow::Error) -> String {
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
    fn a_bad_configuration_is_wrong_usage_and_a_bad_network_is_not() {
        let error = config::Config::from_bytes("c.yaml".as_ref(), b"").unwrap_err();
        let error = anyhow::Error::from(error);
        assert_eq!(exit_code(&error), USED_WRONGLY);
        assert!(
            error_text(&error).starts_with("c.yaml:1:1: the file is empty"),
            "{}",
            error_text(&error)
        );
        let error = anyhow::Error::from(io::Error::other("reset")).context("no answer");
        assert_eq!(
            (exit_code(&error), error_text(&error).as_str()),
            (FAILED, "listless: no answer: reset")
        );
    }
}
