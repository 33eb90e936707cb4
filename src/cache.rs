//! The set of replicas: which queries are held, started, widened, stopped and bounded.

pub mod history;
pub mod reflector;
pub mod store;
