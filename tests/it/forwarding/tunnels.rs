//! Connections that stop being HTTP: exec, attach, port-forward.

use std::{net::SocketAddr, sync::Arc, time::SystemTime};

use listless::{
    tls,
    upstream::{Endpoint, Pool, Settings, dial::Tcp},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use crate::harness::{LOCAL_TOKEN, OWN_TOKEN, RawConnection, STRANGERS_TOKEN, Setup, TestProxy};

/// What the apiserver of these tests saw of one connection.
struct Visit {
    /// The request's head, lower case.
    head: String,
    stream: TcpStream,
}

const SWITCHING: &str = "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\n\
    upgrade: SPDY/3.1\r\nx-stream-protocol-version: v4.channel.k8s.io\r\n\r\n";

const EXEC: &str = "/api/v1/namespaces/a/pods/web-0/exec?command=sh&stdin=true";

/// An apiserver that answers every head in the same way and leaves the rest to the test.
async fn apiserver(answer: &'static str) -> (SocketAddr, mpsc::Receiver<Visit>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (visits, receiver) = mpsc::channel(8);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(byte) => head.push(byte),
                    Err(_) => break,
                }
            }
            // Whoever left early does not mind.
            let _ = stream.write_all(answer.as_bytes()).await;
            let head = String::from_utf8(head).expect("a textual head").to_ascii_lowercase();
            if visits.send(Visit { head, stream }).await.is_err() {
                return;
            }
        }
    });
    (address, receiver)
}

async fn proxy(apiserver: SocketAddr) -> TestProxy {
    let authority = tls::Authority::generate(SystemTime::now()).expect("an authority");
    let config = tls::client_config(authority.pem().as_bytes()).expect("a configuration");
    let uri = format!("http://{apiserver}").parse().expect("a URI");
    let endpoint = Endpoint::new(&uri, Arc::new(config), None).expect("an endpoint");
    let pool = Pool::new(Arc::new(Tcp), endpoint, Settings::default());
    Setup::default().upstream(pool).on_loopback().await
}

fn upgrade(token: &str) -> String {
    format!(
        "POST {EXEC} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\
         Connection: keep-alive, Upgrade\r\nUpgrade: SPDY/3.1\r\n\
         X-Stream-Protocol-Version: v5.channel.k8s.io\r\n\
         X-Stream-Protocol-Version: v4.channel.k8s.io\r\nX-Remote-User: admin\r\n\
         Content-Length: 0\r\n\r\n"
    )
}

async fn read(stream: &mut TcpStream, bytes: usize) -> Vec<u8> {
    let mut buffer = vec![0; bytes];
    stream.read_exact(&mut buffer).await.expect("as many bytes");
    buffer
}

async fn open(proxy: &TestProxy, token: &str) -> RawConnection {
    let mut connection = proxy.raw().await;
    connection.send(upgrade(token)).await;
    connection
}

#[tokio::test]
async fn a_tunnel_carries_bytes_both_ways_until_both_sides_have_ended() {
    let (address, mut visits) = apiserver(SWITCHING).await;
    let proxy = proxy(address).await;
    let mut client = open(&proxy, LOCAL_TOKEN).await;
    let answer = client.answer().await.expect("an answer");
    assert_eq!(answer.status, 101);
    assert_eq!(answer.header("upgrade"), "spdy/3.1");
    assert_eq!(answer.header("connection"), "upgrade");
    assert_eq!(answer.header("x-stream-protocol-version"), "v4.channel.k8s.io");
    let mut visit = visits.recv().await.expect("a connection");
    client.send(b"\x80\x03\x00\x01ping").await;
    assert_eq!(read(&mut visit.stream, 8).await, b"\x80\x03\x00\x01ping");
    visit.stream.write_all(b"\x00\xffpong").await.expect("an open tunnel");
    assert_eq!(client.exactly(6).await.expect("bytes"), b"\x00\xffpong");
    let large = vec![7; 1 << 20];
    let (sent, received) = tokio::join!(client.send(&large), read(&mut visit.stream, large.len()));
    let () = sent;
    assert!(received == large);
    client.finish().await;
    assert_eq!(visit.stream.read(&mut [0; 1]).await.expect("the end"), 0);
    visit.stream.write_all(b"goodbye").await.expect("the other half is open");
    drop(visit);
    assert_eq!(client.rest().await, b"goodbye");
    proxy.drain().await;
}

#[tokio::test]
async fn the_apiserver_is_asked_to_upgrade_in_the_callers_words_and_name() {
    let (address, mut visits) = apiserver(SWITCHING).await;
    let proxy = proxy(address).await;
    for (token, name) in [(LOCAL_TOKEN, OWN_TOKEN), (STRANGERS_TOKEN, STRANGERS_TOKEN)] {
        let mut client = open(&proxy, token).await;
        assert_eq!(client.answer().await.expect("an answer").status, 101);
        let head = visits.recv().await.expect("a connection").head;
        assert!(head.starts_with(&format!("post {EXEC} http/1.1\r\n").to_ascii_lowercase()));
        for line in [
            "upgrade: spdy/3.1",
            "connection: upgrade",
            "x-stream-protocol-version: v5.channel.k8s.io",
            "x-stream-protocol-version: v4.channel.k8s.io",
            &format!("authorization: bearer {name}"),
            &format!("host: {address}"),
        ] {
            assert!(head.contains(&format!("\r\n{line}\r\n")), "{line} is not in {head}");
        }
        assert!(!head.contains("x-remote-user"), "{head}");
        assert_eq!(head.matches("authorization:").count(), 1);
    }
    proxy.drain().await;
}

#[tokio::test]
async fn a_refused_upgrade_is_an_ordinary_answer_and_nothing_sent_early_arrives() {
    let refusal = "HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno";
    let (address, mut visits) = apiserver(refusal).await;
    let proxy = proxy(address).await;
    let mut client = proxy.raw().await;
    let early = "DELETE /api/v1/nodes HTTP/1.1\r\nhost: x\r\n\r\n";
    client.send(format!("{}{early}", upgrade(LOCAL_TOKEN))).await;
    let answer = client.answer().await.expect("an answer");
    assert_eq!((answer.status, answer.text().as_str()), (403, "no"));
    assert_eq!(answer.header("connection"), "close");
    assert_eq!(client.rest().await, b"", "what was meant for the tunnel is not a request");
    let mut visit = visits.recv().await.expect("a connection");
    let mut after = Vec::new();
    visit.stream.read_to_end(&mut after).await.expect("the end");
    assert_eq!(after, b"");
    proxy.drain().await;
}

#[tokio::test]
async fn an_apiserver_that_switches_to_something_else_is_not_believed() {
    let wrong = "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: other\r\n\r\n";
    let (address, _visits) = apiserver(wrong).await;
    let proxy = proxy(address).await;
    let mut client = open(&proxy, LOCAL_TOKEN).await;
    let answer = client.answer().await.expect("an answer");
    assert_eq!(answer.status, 502, "{}", answer.text());
    assert!(answer.text().contains("\"kind\":\"Status\""), "{}", answer.text());
    proxy.drain().await;
}

#[tokio::test]
async fn a_tunnel_that_breaks_on_one_side_ends_on_the_other() {
    let (address, mut visits) = apiserver(SWITCHING).await;
    let proxy = proxy(address).await;
    let mut client = open(&proxy, LOCAL_TOKEN).await;
    assert_eq!(client.answer().await.expect("an answer").status, 101);
    let visit = visits.recv().await.expect("a connection");
    drop(visit);
    assert_eq!(client.rest().await, b"");
    let mut client = open(&proxy, LOCAL_TOKEN).await;
    assert_eq!(client.answer().await.expect("an answer").status, 101);
    let mut visit = visits.recv().await.expect("a connection");
    drop(client);
    assert_eq!(visit.stream.read(&mut [0; 1]).await.unwrap_or_default(), 0);
    proxy.drain().await;
}
