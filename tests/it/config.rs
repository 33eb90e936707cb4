//! The configuration file: what is refused and in which words, how it is reloaded, what is written
//! down about it.

mod files;
mod problems;
mod reload;

/// What every file begins with; the first field of a case is on line 3.
const HEAD: &str = "apiVersion: listless.dev/v1alpha1\nkind: ProxyConfiguration\n";
