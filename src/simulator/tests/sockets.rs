//! The simulator over TLS, with the proxy's own connection pool as client.

use std::{sync::Arc, time::SystemTime};

use http::Request;
use tokio::net::TcpListener;

use crate::{
    body::Body,
    simulator::{Effect, Fault, Simulator},
    tls::{self, Authority, Names},
    upstream::{Client, Endpoint, Error, Lane, Pool, Settings, dial::Tcp},
};

/// Starts a simulator on loopback and a pool connected to it.
async fn served() -> (Simulator, Pool, tokio::task::JoinHandle<()>) {
    let authority = Authority::generate(SystemTime::now()).expect("an authority");
    let leaf = authority.issue(&Names::of_apiserver(""), SystemTime::now()).expect("a leaf");
    let server = tls::Server::new(leaf).expect("a server configuration");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let simulator = Simulator::default();
    let serving = simulator.clone();
    let task = tokio::spawn(async move {
        let _ = serving.serve_tls(listener, server).await;
    });
    let config = tls::client_config(authority.pem().as_bytes()).expect("a configuration");
    let uri = format!("https://{address}").parse().expect("a URI");
    let endpoint = Endpoint::new(&uri, Arc::new(config), None).expect("an endpoint");
    (simulator, Pool::new(Arc::new(Tcp::default()), endpoint, Settings::default()), task)
}

async fn list(pool: &Pool) -> Result<String, Error> {
    let request = Request::get("/api/v1/pods").body(Body::empty()).expect("a request");
    let answer = pool.send(request, Lane::Short).await?;
    let body = answer.into_body().collect(1 << 20).await.map_err(Error::Broken)?;
    Ok(String::from_utf8_lossy(&body).into_owned())
}

#[tokio::test]
async fn it_answers_over_tls_as_it_does_without_sockets() {
    let (simulator, pool, _task) = served().await;
    let request = Request::get("/api/v1/pods").body(Body::empty()).expect("a request");
    let direct = simulator.answer(request).await.expect("an answer").into_body();
    let direct = direct.collect(1 << 20).await.expect("a body");
    assert_eq!(list(&pool).await.expect("an answer"), direct);
    assert_eq!(simulator.counters().lists, 2);
}

#[tokio::test]
async fn faults_break_connections_and_an_outage_ends() {
    let (simulator, pool, _task) = served().await;
    list(&pool).await.expect("an answer");
    simulator.inject(Fault::next(1, Effect::BreakAfter(3), |_| true));
    assert!(list(&pool).await.is_err());
    simulator.inject(Fault::next(1, Effect::Close, |_| true));
    assert!(list(&pool).await.is_err());
    simulator.stop();
    assert!(list(&pool).await.is_err());
    simulator.start();
    // The pool may still hold a connection whose end it has not noticed.
    let mut answered = list(&pool).await;
    for _ in 0..3 {
        if answered.is_err() {
            answered = list(&pool).await;
        }
    }
    answered.expect("the simulator is back");
}
