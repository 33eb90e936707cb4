//! `listless check`: runs preflight checks as a kubeconfig's user or the pod's service account.

use std::{sync::Arc, time::SystemTime};

use anyhow::Context;

use crate::{
    api::GroupResource,
    check::{Asker, Report, Subject, Vantage},
    upstream::{
        self,
        dial::Tcp,
        identity::{self, Source},
    },
};

use super::{options::CheckOptions, serve};

/// Runs the preflight checks.
pub fn check(options: &CheckOptions) -> anyhow::Result<Report> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().context("cannot start the runtime")?;
    runtime.block_on(checked(options))
}

async fn checked(options: &CheckOptions) -> anyhow::Result<Report> {
    let upstream = &options.upstream;
    let (kubeconfig, context) = (upstream.kubeconfig.as_deref(), upstream.context.as_deref());
    let access = identity::here(kubeconfig, context, &options.service_account).await?;
    // A kubeconfig may lead to another cluster than that of this pod.
    let vantage = match access.source() {
        Source::ServiceAccount { .. } => Vantage::Pod,
        Source::Kubeconfig { .. } | Source::Given { .. } => Vantage::Outside,
    };
    let mut resources = options.resources.clone();
    if resources.is_empty() && vantage == Vantage::Outside {
        resources.push(GroupResource::new("", "pods"));
    }
    let subject = Subject {
        webhook_configuration: options.webhook_configuration.clone(),
        namespace: options.namespace.clone(),
        own_namespace: access.source().namespace().to_owned(),
        resources,
    };
    let apiserver = serve::authority_of(access.endpoint());
    let (_, own) = access.clients(Arc::new(Tcp::default()), upstream::Settings::default());
    let asker = Asker { client: Arc::new(own), apiserver, vantage };
    Ok(asker.facts(&subject).await.report(SystemTime::now()))
}
