//! temp
use listless::*;
use std::{sync::Arc, time::SystemTime};
#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(std::env::var("LISTLESS_LOG").unwrap_or("info".into()))
        .init();
    let a: Vec<String> = std::env::args().collect();
    let get = |n: &str| a.iter().position(|x| x == n).map(|i| a[i + 1].clone());
    let access = upstream::identity::from_kubeconfig(
        get("--kubeconfig").as_deref().map(std::path::Path::new),
        None,
    )
    .await?;
    let (plain, own) = access.clients(Arc::new(upstream::dial::Tcp), upstream::Settings::default());
    let bound = proxy::listen::Bound::bind("--listen", get("--listen").unwrap().parse()?).await?;
    let addr = bound.address();
    let ca = tls::Authority::generate(SystemTime::now())?;
    let leaf = ca.issue(&tls::Names::of_apiserver("cluster.local"), SystemTime::now())?;
    let (_tx, config) = tokio::sync::watch::channel(Arc::new(config::Config::default()));
    let metrics = metrics::Metrics::new();
    let running = app::Running::start(app::Foundation {
        listeners: vec![bound],
        tls: Some(tls::Server::new(leaf)?),
        token: "localtoken".into(),
        own: Arc::new(own),
        plain: Arc::new(plain),
        config,
        metrics: metrics.clone(),
    });
    use base64::Engine;
    std::fs::write(
        get("--write-kubeconfig").unwrap(),
        format!(
            "apiVersion: v1\nkind: Config\nclusters: [{{name: c, cluster: {{server: \"https://{addr}\", certificate-authority-data: {}}}}}]\nusers: [{{name: u, user: {{token: localtoken}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\ncurrent-context: c\n",
            base64::prelude::BASE64_STANDARD.encode(ca.pem())
        ),
    )?;
    println!("ready {addr}");
    tokio::signal::ctrl_c().await?;
    running.drain().await;
    Ok(())
}
