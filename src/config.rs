//! The configuration file: its shape, its checks, its reload.
