//! The upstream side against in-process servers, over TLS on in-memory streams.

mod apart;
mod harness;
mod http1;
mod identity;
mod plugins;
mod pool;
mod slots;
mod tunnel;
