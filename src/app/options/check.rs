//! The options of the preflight checks.

use std::path::PathBuf;

use clap::Args;

use super::{KubeconfigOptions, SERVICE_ACCOUNT};
use crate::api::GroupResource;

/// The options of `listless check`.
#[derive(Clone, Debug, Args)]
pub struct CheckOptions {
    /// The apiserver to check, and the user to connect as [default: in a pod its own].
    #[command(flatten)]
    pub upstream: KubeconfigOptions,
    /// In a pod: the directory of the service account to connect as.
    #[arg(long, value_name = "DIRECTORY", default_value = SERVICE_ACCOUNT)]
    pub service_account: PathBuf,
    /// The MutatingWebhookConfiguration to check [default: the first one of Listless].
    #[arg(long, value_name = "NAME")]
    pub webhook_configuration: Option<String>,
    /// The namespace of the test pod, which is never stored [default: the first namespace labelled
    /// listless.dev/injection=enabled, else default].
    #[arg(long, short, value_name = "NAME")]
    pub namespace: Option<String>,
    /// A resource that the user wants to list and watch, such as deployments.apps; may be repeated
    /// [default: pods; nothing in a pod].
    #[arg(long = "resource", value_name = "RESOURCE", value_parser = resource)]
    pub resources: Vec<GroupResource>,
}

/// Parses a resource with its group behind a dot.
fn resource(text: &str) -> Result<GroupResource, String> {
    let (resource, group) = text.split_once('.').unwrap_or((text, ""));
    let is_fine = |part: &str| {
        part.bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte))
    };
    if resource.is_empty() || !is_fine(resource) || !is_fine(group) {
        return Err("write a plural name, such as pods or deployments.apps".to_owned());
    }
    Ok(GroupResource::new(group, resource))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_named_as_in_kubectl() {
        assert_eq!(resource("pods"), Ok(GroupResource::new("", "pods")));
        let expected = GroupResource::new("example.com", "widgets");
        assert_eq!(resource("widgets.example.com"), Ok(expected));
        for text in ["", ".apps", "Pods", "pods/log", "a b"] {
            assert!(resource(text).is_err(), "{text}");
        }
    }
}
