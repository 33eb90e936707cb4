//! `listless tap`: shows the requests that a running Listless answers, as they arrive.
//!
//! The running Listless decides which requests it may show (`crate::tap`); this module only prints
//! them.

use std::{collections::VecDeque, io};

use anyhow::{Context, bail};
use bytes::Bytes;
use clap::Args;
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::Deserialize;

use super::{
    Output,
    ask::{self, AdminOptions},
    table::{Column, Layout},
    write,
};
use crate::terminal::Screen;

/// The options of `listless tap`.
#[derive(Clone, Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    asked: AdminOptions,
    /// The output format: one line or one JSON object per request.
    #[arg(short = 'o', long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// Show only this verb, such as list.
    #[arg(long, value_name = "VERB")]
    verb: Option<String>,
    /// Show only this resource, such as pods or deployments.apps.
    #[arg(long, value_name = "RESOURCE")]
    resource: Option<String>,
    /// Show only user agents that contain this text.
    #[arg(long, value_name = "TEXT")]
    user_agent: Option<String>,
    /// Show only responses from this source.
    #[arg(
        long,
        value_name = "SOURCE",
        value_parser = ["cache", "coalesced", "upstream", "proxy", "client_closed"]
    )]
    served_by: Option<String>,
}

/// One event of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
struct Event {
    kind: String,
    data: String,
}

/// A stream of events, read line by line (the EventSource form).
#[derive(Default)]
struct Reader {
    rest: Vec<u8>,
    event: Event,
    ready: VecDeque<Event>,
}

/// A request as a row of the table.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    at: f64,
    phase: String,
    verb: String,
    resource: String,
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    subresource: Option<String>,
    query: String,
    user_agent: String,
    served_by: String,
    detail: String,
    code: u16,
    bytes: u64,
    seconds: f64,
}

/// The maximum length of a line.
const LINE_BYTES_MAX: usize = 1 << 20;

/// The columns. A narrow terminal leaves out BYTES first, then SECONDS and TIME.
const COLUMNS: &[Column] = &[
    Column::words("TIME", 12, 12, 3),
    Column::words("VERB", 6, 6, 6),
    Column::words("CODE", 4, 4, 5),
    Column::words("SERVED BY", 10, 10, 7),
    Column::words("WHY", 12, 18, 8),
    Column::number("SECONDS", 7, 2),
    Column::number("BYTES", 10, 1),
    Column::words("REQUEST", 24, 100, 9),
    Column::words("USER AGENT", 14, 60, 4),
];

/// The widths on a screen without a limit. The last columns are not aligned there.
const WIDTHS: [usize; 9] = [12, 6, 4, 10, 18, 7, 10, 7, 10];

/// The widths from which a terminal's columns shrink.
const WIDTHS_MAX: [usize; 9] = [12, 6, 4, 10, 18, 7, 10, 100, 60];

/// The table of requests on one screen.
struct Requests {
    screen: Screen,
    layout: Layout,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    ask::block_on(async {
        tokio::select! {
            followed = follow(arguments) => match followed {
                Err(error) if is_closed_pipe(&error) => Ok(()),
                followed => followed,
            },
            interrupted = tokio::signal::ctrl_c() => {
                interrupted.context("cannot listen for signals")
            }
        }
    })
}

/// Reports whether the reader of the output, such as `head`, has enough.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Prints requests until the server ends the stream.
async fn follow(arguments: &Arguments) -> anyhow::Result<()> {
    let filters = [
        ("verb", &arguments.verb),
        ("resource", &arguments.resource),
        ("userAgent", &arguments.user_agent),
        ("servedBy", &arguments.served_by),
    ];
    let given = filters.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?)));
    let parameters: Vec<_> = std::iter::once(("only", "requests")).chain(given).collect();
    let target = ask::target("/api/v1/events", &parameters);
    let mut body = ask::open(&arguments.asked.admin, &target).await?.into_body();
    let requests = Requests::new(Screen::stdout());
    if arguments.output == Output::Table {
        write(&requests.layout.headings(COLUMNS, requests.screen))?;
    }
    let mut reader = Reader::default();
    while let Some(bytes) = next(&mut body).await? {
        reader.take(&bytes)?;
        while let Some(event) = reader.ready.pop_front() {
            show(arguments.output, &requests, &event)?;
        }
    }
    bail!("{}: the stream ended", arguments.asked.admin)
}

async fn next(body: &mut Incoming) -> anyhow::Result<Option<Bytes>> {
    while !body.is_end_stream() {
        let Some(frame) = body.frame().await else { break };
        if let Ok(bytes) = frame.context("the stream broke")?.into_data() {
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}

fn show(output: Output, requests: &Requests, event: &Event) -> anyhow::Result<()> {
    match (event.kind.as_str(), output) {
        ("request", Output::Json) => write(&format!("{}\n", event.data))?,
        ("request", Output::Table) => {
            let row: Row =
                serde_json::from_str(&event.data).context("received an unknown event")?;
            write(&requests.row(&row))?;
        }
        ("lost", Output::Table) => {
            write(&format!("({} requests are not shown)\n", lost(&event.data)))?;
        }
        ("lost", Output::Json) => write(&format!("{}\n", event.data))?,
        _ => {}
    }
    Ok(())
}

fn lost(data: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(data).unwrap_or_default();
    value["lost"].to_string()
}

// === impl Requests ===

impl Requests {
    fn new(screen: Screen) -> Self {
        let layout = if screen.width == usize::MAX {
            Layout::uncut(&WIDTHS)
        } else {
            Layout::of(COLUMNS, &WIDTHS_MAX, screen.width)
        };
        Self { screen, layout }
    }

    /// Formats a request on one line. Without a limit of the width nothing is cut.
    fn row(&self, row: &Row) -> String {
        self.layout.row(COLUMNS, &row.cells(), self.screen)
    }
}

// === impl Reader ===

impl Reader {
    /// Parses a chunk. Whole events become ready.
    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.rest.extend_from_slice(bytes);
        let mut from = 0;
        while let Some(length) = self.rest[from..].iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(&self.rest[from..from + length]).into_owned();
            from += length + 1;
            self.line(line.trim_end_matches('\r'));
        }
        self.rest.drain(..from);
        if self.rest.len() > LINE_BYTES_MAX {
            return Err(io::Error::other("a line of the stream is too long"));
        }
        Ok(())
    }

    fn line(&mut self, line: &str) {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            if !event.data.is_empty() {
                self.ready.push_back(event);
            }
        } else if let Some(kind) = line.strip_prefix("event: ") {
            self.event.kind = kind.to_owned();
        } else if let Some(data) = line.strip_prefix("data: ") {
            self.event.data.push_str(data);
        }
    }
}

// === impl Row ===

impl Row {
    fn cells(&self) -> Vec<String> {
        let served = if self.phase == "began" { "began" } else { self.served_by.as_str() };
        vec![
            time_of_day(self.at),
            self.verb.clone(),
            self.code.to_string(),
            served.to_owned(),
            self.detail.clone(),
            format!("{:.3}", self.seconds),
            self.bytes.to_string(),
            self.what(),
            self.user_agent.clone(),
        ]
    }

    /// Formats the request's subject on one line.
    fn what(&self) -> String {
        let mut what = self.resource.clone();
        for part in [&self.subresource, &self.namespace, &self.name].into_iter().flatten() {
            what.push('/');
            what.push_str(part);
        }
        if !self.query.is_empty() {
            what.push_str("  ");
            what.push_str(&self.query);
        }
        what
    }
}

/// Formats the time of day in UTC, to a millisecond.
fn time_of_day(unix_seconds: f64) -> String {
    let milliseconds = (unix_seconds * 1e3) as i64;
    let at = jiff::Timestamp::from_millisecond(milliseconds).unwrap_or_default();
    at.strftime("%H:%M:%S%.3f").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_parsed_wherever_they_are_split() {
        let text = b"retry: 2000\n\nevent: request\ndata: {\"a\":1}\n\n: beat\n\nevent: lost\n\
                     data: {\"lost\":2}\n\n";
        for size in 1..text.len() {
            let mut reader = Reader::default();
            for piece in text.chunks(size) {
                reader.take(piece).unwrap();
            }
            let event = |kind: &str, data: &str| Event { kind: kind.into(), data: data.into() };
            let expected = [event("request", "{\"a\":1}"), event("lost", "{\"lost\":2}")];
            assert_eq!(reader.ready, expected, "pieces of {size}");
            assert_eq!(lost(&reader.ready[1].data), "2");
        }
    }

    #[test]
    fn a_line_without_an_end_is_not_kept() {
        let mut reader = Reader::default();
        assert!(reader.take(&vec![b'x'; LINE_BYTES_MAX + 1]).is_err());
    }

    #[test]
    fn a_request_is_one_line() {
        let data = r#"{"at":1700000000.25,"phase":"ended","verb":"list","resource":"pods.v1",
            "namespace":"shop","query":"labelSelector=app=web","userAgent":"curl/8","servedBy":"cache",
            "detail":"session","code":200,"bytes":1234,"seconds":0.0005}"#;
        let row: Row = serde_json::from_str(data).unwrap();
        let expected = "22:13:20.250  list    200   cache       session               0.001        1234  \
                        pods.v1/shop  labelSelector=app=web  curl/8\n";
        assert_eq!(Requests::new(Screen::PLAIN).row(&row), expected);
        for width in [80, 120] {
            let requests = Requests::new(Screen { width, colours: false });
            let head = requests.layout.headings(COLUMNS, requests.screen);
            let line = requests.row(&row);
            assert!(
                head.chars().count() <= width + 1 && line.chars().count() <= width + 1,
                "{line}"
            );
            assert!(line.contains(" session ") && line.ends_with("  curl/8\n"), "{line}");
            assert!(line.contains("pods.v1/shop  label"), "{line}");
        }
    }
}
