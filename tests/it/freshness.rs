//! Every later read of a session contains what the session wrote or was shown.

mod content;
mod levels;
mod mixed;
mod model;
mod monotonic;
mod protobuf;
mod races;
mod writes;

use listless::{
    api::Verb,
    simulator::{Asked, Effect, Fault},
};

use crate::harness::{Setup, TestProxy};

fn is_watch_of_replica(asked: &Asked) -> bool {
    asked.verb == Verb::Watch && asked.user_agent.starts_with("listless/")
}

/// A replica that receives no event after its list.
async fn stalled(path: &str) -> TestProxy {
    let proxy = Setup::default().in_memory();
    proxy.simulator.inject(Fault::always(Effect::StallAfter(0), is_watch_of_replica));
    proxy.warm(path).await;
    proxy
}
