//! `listless explain`: explains the outcome of a request.
//!
//! By default it reads only the configuration. It contacts neither the apiserver nor a running
//! Listless. With `--admin` it queries a running Listless, which also reports its replicas.

use std::path::PathBuf;

use clap::Args;
use http::Method;

use super::{
    Output,
    ask::{self, AdminAddress},
    configuration, print,
};
use crate::{
    api::url,
    app::options::UsageError,
    explain::{self, ExplainedRequest},
    terminal::{Screen, Style},
};

/// The described request.
#[derive(Clone, Debug, Args)]
pub(super) struct Arguments {
    /// The HTTP method, such as GET.
    method: String,
    /// The URL, or its path and query: /api/v1/namespaces/shop/pods?labelSelector=app%3Dweb
    url: String,
    /// A request header, such as "Accept: application/json"; may be repeated.
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// The configuration file [default: every setting at its default].
    #[arg(long, value_name = "FILE", conflicts_with = "admin")]
    config: Option<PathBuf>,
    /// The admin address of a running Listless, to use its present state.
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<AdminAddress>,
    /// The output format.
    #[arg(short = 'o', long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let method =
        explain::method(&arguments.method).map_err(|error| UsageError(error.to_string()))?;
    let uri = url::parse(&arguments.url).map_err(|error| UsageError(error.to_string()))?;
    let headers = explain::headers(arguments.headers.iter().map(String::as_str))
        .map_err(|error| UsageError(format!("--header {error}")))?;
    let explanation = match &arguments.admin {
        Some(address) => asked(address, arguments, &method)?,
        None => {
            let config = configuration::load(arguments.config.as_deref())?;
            let question = ExplainedRequest { method: &method, uri: &uri, headers: &headers };
            explain::explain(question, &config, None)
        }
    };
    print(&match arguments.output {
        Output::Table => table(&explanation, Screen::stdout()),
        Output::Json => serde_json::to_string_pretty(&explanation)? + "\n",
    })?;
    Ok(())
}

/// Formats one statement per line, with its topic in front.
fn table(explanation: &explain::Explanation, screen: Screen) -> String {
    let topic = |topic: &str| screen.paint(Style::Bold, &format!("{topic:<15}")) + " ";
    let line = |said: &explain::Statement| screen.labelled(&topic(&said.topic), &said.text);
    explanation.told.iter().map(line).collect()
}

/// Returns the explanation of a running Listless.
fn asked(
    address: &AdminAddress,
    arguments: &Arguments,
    method: &Method,
) -> anyhow::Result<explain::Explanation> {
    let mut parameters = vec![("method", method.as_str()), ("url", arguments.url.as_str())];
    parameters.extend(arguments.headers.iter().map(|header| ("header", header.as_str())));
    let path = ask::target("/api/v1/explain", &parameters);
    let document = ask::block_on(ask::document(address, &path))?;
    Ok(serde_json::from_slice(&document)?)
}
