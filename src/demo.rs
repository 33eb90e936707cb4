//! `listless demo`: the same pollers on a simulated apiserver, directly and through Listless.
//!
//! It needs no cluster: the apiserver is the simulator over TLS on loopback, and Listless runs in
//! this process like `listless local`. All figures are measured in this run, and each poller checks
//! its responses.

mod cluster;
mod connection;
mod listless;
mod phase;
mod plan;
mod pod;
mod poller;
mod processor;
mod report;

use std::{
    any::Any,
    io::{IsTerminal, Write},
    net::{SocketAddr, TcpListener},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, MissedTickBehavior, interval};

use self::{
    cluster::SimulatedCluster,
    phase::{Kind, Measured, Phase},
    plan::Plan,
    report::{Report, Table},
};
use crate::{
    app::options::{address, whole},
    terminal::Screen,
};

/// The options of `listless demo`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The duration of the demo, all phases together.
    #[arg(long, value_name = "N", default_value_t = 20)]
    #[arg(value_parser = whole::<u64>(2..=3600))]
    pub seconds: u64,
    /// The output format.
    #[arg(short = 'o', long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// The address of Listless's page during the demo; the polls then continue until Ctrl-C.
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub admin: Option<SocketAddr>,
}

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// A table that updates in place, and a verdict.
    Table,
    /// One JSON object at the end.
    Json,
}

/// A server for pollers.
#[derive(Clone, Debug)]
struct Server {
    /// Its address, on loopback.
    address: SocketAddr,
    /// The authority of its certificate.
    ca_pem: String,
    /// The token that it accepts.
    token: String,
}

/// The simulated apiserver behind Listless.
type Cluster = Server;

/// A running Listless.
struct Proxy {
    /// The server for pollers.
    server: Server,
    /// The address of its page.
    page: Option<SocketAddr>,
    /// A guard that ends it when dropped.
    _guard: Box<dyn Any + Send>,
}

/// A function that starts Listless in front of a cluster, like `listless local`.
type StartProxy = Box<dyn FnOnce(Cluster) -> BoxFuture<'static, anyhow::Result<Proxy>> + Send>;

/// The size of the simulated cluster and the rate of its polls.
#[derive(Clone, Debug)]
struct Scale {
    apps: usize,
    pods_per_app: usize,
    writes_per_second: u32,
    pollers: usize,
    period: Duration,
}

/// The reason why the demo ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Completed,
    Interrupted,
}

const APPS: usize = 100;
const PODS_PER_APP: usize = 50;
const WRITES_PER_SECOND: u32 = 50;
const POLLERS: usize = 20;

/// The usual period of such loops in fabric8 programs.
const PERIOD: Duration = Duration::from_secs(3);

/// The minimum number of polls per poller and phase. Pollers poll faster if needed.
const POLLS_MIN: u32 = 3;

/// The maximum time of polls for viewers of the page.
const LOOK_MAX: Duration = Duration::from_secs(3600);

const REDRAW: Duration = Duration::from_millis(500);

/// The command to try after the demo.
const NEXT: &str = "\nNext, put Listless in front of your own cluster: listless local";

/// The conventional exit code after Ctrl-C.
const INTERRUPTED_CODE: u8 = 130;

/// Runs the demo on its own runtime and prints the result.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start the threads of the demo")?;
    let code = runtime.block_on(show(args));
    // Requests still in flight then are not needed.
    runtime.shutdown_background();
    code
}

async fn show(args: &Args) -> anyhow::Result<ExitCode> {
    let plan = Plan::of(Duration::from_secs(args.seconds));
    let scale = Scale::new(&plan);
    let out = std::io::stdout();
    let terminal = out.is_terminal() && args.output == Output::Table;
    let screen = match args.output {
        Output::Table => Screen::stdout(),
        Output::Json => Screen::PLAIN,
    };
    let mut table = Table::new(out, terminal, screen);
    let interrupt = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let start_proxy = listless::in_process(args.admin.map(bind).transpose()?);
    let report = measure(args, &scale, &plan, start_proxy, &mut table, interrupt).await?;
    Ok(match (report.interrupted, report.is_clean()) {
        (true, _) => ExitCode::from(INTERRUPTED_CODE),
        (false, true) => ExitCode::SUCCESS,
        (false, false) => ExitCode::FAILURE,
    })
}

fn bind(admin: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(admin).with_context(|| format!("--admin {admin}"))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

async fn measure<W: Write>(
    args: &Args,
    scale: &Scale,
    plan: &Plan,
    start_proxy: StartProxy,
    table: &mut Table<W>,
    interrupt: impl Future<Output = ()>,
) -> anyhow::Result<Report> {
    let mut interrupt = std::pin::pin!(interrupt);
    let began = Instant::now();
    let shown = args.output == Output::Table;
    if shown {
        table.say(&scale.introduction())?;
    }
    let cluster = SimulatedCluster::start(scale).await?;
    let mut report = Report { poll_period_ms: milliseconds(scale.period), ..Report::default() };
    let mut proxy = None;
    let mut start_proxy = Some(start_proxy);
    for kind in [Kind::Straight, Kind::WarmUp, Kind::Listless] {
        if kind == Kind::WarmUp
            && let Some(start_proxy) = start_proxy.take()
        {
            let started = start_proxy(cluster.endpoint()).await.context("starting Listless")?;
            if let (Some(page), true) = (started.page, shown) {
                table.say(&format!("The page: http://{page}/\n"))?;
            }
            proxy = Some(started);
        }
        let server = proxy.as_ref().map_or_else(|| cluster.endpoint(), |it| it.server.clone());
        let time = plan.time(kind, began.elapsed());
        let mut phase = Phase::start(kind, &cluster, &server, scale, Instant::now() + time)?;
        let ended = follow(&mut phase, interrupt.as_mut(), |measured| {
            report.note(kind, measured);
            if shown { table.draw(&report) } else { Ok(()) }
        });
        if ended.await? == End::Interrupted {
            report.interrupted = true;
            break;
        }
    }
    match args.output {
        Output::Table => {
            table.finish(&report)?;
            table.say(NEXT)?;
        }
        Output::Json => table.say(&serde_json::to_string(&report)?)?,
    }
    if let Some(proxy) = proxy.filter(|proxy| proxy.page.is_some() && !report.interrupted) {
        if shown {
            table.say(
                "\nThe polls continue so that you can look at the page; press Ctrl-C to end them.",
            )?;
        }
        let end = Instant::now() + LOOK_MAX;
        let mut phase = Phase::start(Kind::Shown, &cluster, &proxy.server, scale, end)?;
        follow(&mut phase, interrupt, |_| Ok(())).await?;
    }
    Ok(report)
}

fn milliseconds(duration: Duration) -> u64 {
    duration.as_millis().try_into().unwrap_or(u64::MAX)
}

/// Prints a phase until it ends or the user interrupts it.
async fn follow(
    phase: &mut Phase<'_>,
    mut interrupt: impl Future<Output = ()> + Unpin,
    mut show: impl FnMut(Measured) -> std::io::Result<()>,
) -> anyhow::Result<End> {
    let mut redraw = interval(REDRAW);
    redraw.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let ended = loop {
        tokio::select! {
            () = phase.finished() => break End::Completed,
            () = &mut interrupt => break End::Interrupted,
            _ = redraw.tick() => show(phase.measured())?,
        }
    };
    show(phase.measured())?;
    Ok(ended)
}

// === impl Scale ===

impl Scale {
    /// Returns the demo's cluster, polled as often as the time allows.
    fn new(plan: &Plan) -> Self {
        Self {
            apps: APPS,
            pods_per_app: PODS_PER_APP,
            writes_per_second: WRITES_PER_SECOND,
            pollers: POLLERS,
            period: PERIOD.min(plan.straight / POLLS_MIN),
        }
    }

    fn introduction(&self) -> String {
        let scaled = if self.period < PERIOD {
            format!(
                " (faster than every {} s, so that each polls {POLLS_MIN} times in each phase)",
                PERIOD.as_secs()
            )
        } else {
            String::new()
        };
        format!(
            "Simulating an apiserver over TLS on loopback with {} pods of about 9 kB, {} status \
             changes a second.\n{} clients LIST their {} pods by labelSelector every {:.1} \
             s{scaled}, without a resourceVersion, as fabric8 does: first directly, then through \
             Listless.\n",
            self.apps * self.pods_per_app,
            self.writes_per_second,
            self.pollers,
            self.pods_per_app,
            self.period.as_secs_f64(),
        )
    }
}

#[cfg(test)]
mod tests;
