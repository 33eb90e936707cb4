//! The configuration file: its errors and their messages, its reload, and the documents about it.

mod files;
mod problems;
mod reload;

/// The head of every file; the first field of a case is on line 3.
const HEAD: &str = "apiVersion: listless.dev/v1alpha1\nkind: ProxyConfiguration\n";
