//! The explanation of a request given by the parameters `method`, `url` and `header`.

use serde::Serialize;

use super::{Sources, parameters::Parameters};
use crate::{
    api::url,
    explain::{self, ExplainedRequest, Statement},
};

/// The described request and its explanation.
#[derive(Serialize)]
struct Document<'a> {
    method: &'a str,
    url: &'a str,
    told: Vec<Statement>,
}

/// Returns the explanation as JSON, or the error in the parameters.
pub(super) fn document(sources: &Sources, parameters: &Parameters) -> Result<String, String> {
    let method = explain::method(parameters.get("method").unwrap_or("GET"));
    let method = method.map_err(|error| format!("method: {error}"))?;
    let url =
        parameters.get("url").ok_or("url: required; pass a path such as /api/v1/pods")?.trim();
    let uri = url::parse(url).map_err(|error| format!("url: {error}"))?;
    if uri.path().is_empty() || uri.path() == "*" {
        return Err("url: has no path; pass one such as /api/v1/pods".to_owned());
    }
    let headers = explain::headers(parameters.all("header")).map_err(|error| error.to_string())?;
    let question = ExplainedRequest { method: &method, uri: &uri, headers: &headers };
    let told = (sources.explain)(question).told;
    let document = Document { method: method.as_str(), url, told };
    Ok(serde_json::to_string_pretty(&document).expect("texts are JSON") + "\n")
}
