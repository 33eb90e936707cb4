//! The rig: a real control plane, raw clients, data, and the proxy under test, as plain values.
//!
//! This module does not depend on the test harness. The benches include it with `#[path =
//! "../tests/cluster/rig.rs"] mod rig;`. Every path is spelled out for that reason.

#[path = "rig/artifact.rs"]
pub mod artifact;
#[path = "rig/client.rs"]
pub mod client;
#[path = "rig/client_program.rs"]
pub mod client_program;
#[path = "rig/control_plane.rs"]
pub mod control_plane;
#[path = "rig/load_data.rs"]
pub mod load_data;
#[path = "rig/process.rs"]
pub mod process;
#[path = "rig/proxy_process.rs"]
pub mod proxy_process;
#[path = "rig/wait.rs"]
pub mod wait;
