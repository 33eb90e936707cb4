//! Connections that switch from HTTP to another protocol: exec, attach, port-forward.

use crate::harness::{
    LOCAL_TOKEN, OTHER_TOKEN, OWN_TOKEN, RawConnection, Setup, TcpApiserver, TestProxy,
};

const SWITCHING: &str = "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\n\
    upgrade: SPDY/3.1\r\nx-stream-protocol-version: v4.channel.k8s.io\r\n\r\n";

const EXEC: &str = "/api/v1/namespaces/a/pods/web-0/exec?command=sh&stdin=true";

fn upgrade(token: &str) -> String {
    format!(
        "POST {EXEC} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\
         Connection: keep-alive, Upgrade\r\nUpgrade: SPDY/3.1\r\n\
         X-Stream-Protocol-Version: v5.channel.k8s.io\r\n\
         X-Stream-Protocol-Version: v4.channel.k8s.io\r\nX-Remote-User: admin\r\n\
         Content-Length: 0\r\n\r\n"
    )
}

async fn start(answer: &'static str) -> (TcpApiserver, TestProxy) {
    let apiserver = TcpApiserver::start(answer).await;
    let proxy = Setup::default().upstream(apiserver.pool()).on_loopback().await;
    (apiserver, proxy)
}

async fn open(proxy: &TestProxy, token: &str) -> RawConnection {
    let mut connection = proxy.raw().await;
    connection.send(upgrade(token)).await;
    connection
}

#[tokio::test]
async fn a_tunnel_carries_bytes_both_ways_until_both_sides_have_ended() {
    let (mut apiserver, proxy) = start(SWITCHING).await;
    let mut client = open(&proxy, LOCAL_TOKEN).await;
    let answer = client.answer().await.expect("an answer");
    assert_eq!(answer.status, 101);
    assert_eq!(answer.header("upgrade"), "spdy/3.1");
    assert_eq!(answer.header("connection"), "upgrade");
    assert_eq!(answer.header("x-stream-protocol-version"), "v4.channel.k8s.io");
    let mut visit = apiserver.visit().await;
    client.send(b"\x80\x03\x00\x01ping").await;
    assert_eq!(visit.read(8).await, b"\x80\x03\x00\x01ping");
    visit.write(b"\x00\xffpong").await;
    assert_eq!(client.exactly(6).await.expect("bytes"), b"\x00\xffpong");
    let large = vec![7; 1 << 20];
    let ((), received) = tokio::join!(client.send(&large), visit.read(large.len()));
    assert!(received == large);
    client.finish().await;
    assert_eq!(visit.rest().await, b"");
    visit.write(b"goodbye").await;
    drop(visit);
    assert_eq!(client.rest().await, b"goodbye");
    proxy.drain().await;
}

#[tokio::test]
async fn an_upgrade_is_forwarded_with_the_callers_headers_and_credentials() {
    let (mut apiserver, proxy) = start(SWITCHING).await;
    for (token, name) in [(LOCAL_TOKEN, OWN_TOKEN), (OTHER_TOKEN, OTHER_TOKEN)] {
        let mut client = open(&proxy, token).await;
        assert_eq!(client.answer().await.expect("an answer").status, 101);
        let head = apiserver.visit().await.head;
        assert!(head.starts_with(&format!("post {EXEC} http/1.1\r\n").to_ascii_lowercase()));
        for line in [
            "upgrade: spdy/3.1",
            "connection: upgrade",
            "x-stream-protocol-version: v5.channel.k8s.io",
            "x-stream-protocol-version: v4.channel.k8s.io",
            &format!("authorization: bearer {name}"),
            &format!("host: {}", apiserver.address),
        ] {
            assert!(head.contains(&format!("\r\n{line}\r\n")), "{line} is not in {head}");
        }
        assert!(!head.contains("x-remote-user"), "{head}");
        assert_eq!(head.matches("authorization:").count(), 1);
    }
    proxy.drain().await;
}

#[tokio::test]
async fn a_refused_upgrade_is_a_normal_response_and_early_bytes_are_dropped() {
    let refusal = "HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno";
    let (mut apiserver, proxy) = start(refusal).await;
    let mut client = proxy.raw().await;
    let early = "DELETE /api/v1/nodes HTTP/1.1\r\nhost: x\r\n\r\n";
    client.send(format!("{}{early}", upgrade(LOCAL_TOKEN))).await;
    let answer = client.answer().await.expect("an answer");
    assert_eq!((answer.status, answer.text().as_str()), (403, "no"));
    assert_eq!(answer.header("connection"), "close");
    assert_eq!(client.rest().await, b"", "what was meant for the tunnel is not a request");
    let mut visit = apiserver.visit().await;
    assert_eq!(visit.rest().await, b"");
    proxy.drain().await;
}

#[tokio::test]
async fn a_switch_to_another_protocol_is_refused() {
    let wrong = "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: other\r\n\r\n";
    let (_apiserver, proxy) = start(wrong).await;
    let mut client = open(&proxy, LOCAL_TOKEN).await;
    let answer = client.answer().await.expect("an answer");
    assert_eq!(answer.status, 502, "{}", answer.text());
    assert!(answer.text().contains("\"kind\":\"Status\""), "{}", answer.text());
    proxy.drain().await;
}

#[tokio::test]
async fn a_tunnel_that_breaks_on_one_side_ends_on_the_other() {
    let (mut apiserver, proxy) = start(SWITCHING).await;
    let mut client = open(&proxy, LOCAL_TOKEN).await;
    assert_eq!(client.answer().await.expect("an answer").status, 101);
    let visit = apiserver.visit().await;
    drop(visit);
    assert_eq!(client.rest().await, b"");
    let mut client = open(&proxy, LOCAL_TOKEN).await;
    assert_eq!(client.answer().await.expect("an answer").status, 101);
    let mut visit = apiserver.visit().await;
    drop(client);
    assert_eq!(visit.rest().await, b"");
    proxy.drain().await;
}
