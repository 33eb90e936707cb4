//! The data path: identify, classify, decide, answer, observe.

pub mod listen;
