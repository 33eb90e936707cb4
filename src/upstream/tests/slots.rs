//! Slots are free again as soon as the server has no use for them, and found wherever they are.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use http::Request;

use super::{
    harness::{fed, start, text},
    pool::{Gauge, HTTP2, http2, watch},
};
use crate::upstream::{Client, Lane, Settings};

#[tokio::test(start_paused = true)]
async fn a_response_before_the_body_frees_the_slot_although_the_client_sends_nothing() {
    let settings = Settings { long_connections_max: 1, ..Settings::default() };
    let (pool, _, server) = start("", HTTP2, settings);
    server.serve(|stream| http2(stream, 2, Gauge::default()));
    let mut silent = Vec::new();
    for number in 0..4 {
        let (sender, upload) = fed();
        let request = Request::post("/unread").body(upload).unwrap();
        let response = Client::send(&pool, request, Lane::Long).await;
        assert_eq!(text(response.unwrap()).await, "/unread", "request {number}");
        silent.push(sender);
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_connection_does_not_hide_the_free_slots_of_another() {
    let settings = Settings { long_connections_max: 2, ..Settings::default() };
    let (pool, network, server) = start("", HTTP2, settings);
    let is_first = AtomicBool::new(true);
    server.serve(move |stream| {
        let streams = if is_first.swap(false, Ordering::SeqCst) { 4 } else { 1 };
        http2(stream, streams, Gauge::default())
    });
    let mut watches = Vec::new();
    for _ in 0..5 {
        watches.push(watch(&pool).await);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    watches.remove(0);
    watches.push(watch(&pool).await);
    assert_eq!(network.dialled(), 2);
}
