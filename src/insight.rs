//! Who asks what, how often, at what cost, and what should be mended. Written by the data path,
//! read by people; nothing is decided by it.

pub mod report;
