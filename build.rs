//! Links the shipped binary so that less of it is mapped, where linker and loader can.

use std::{env, process::Command};

/// From this version on glibc's loader reads relative relocations in their compact form.
const GLIBC_MIN: (u32, u32) = (2, 36);

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |variable: &str, value: &str| env::var(variable).is_ok_and(|text| text == value);
    // The linker that comes with the toolchain on this platform knows both options.
    let known = is("TARGET", "x86_64-unknown-linux-gnu") && is("HOST", "x86_64-unknown-linux-gnu");
    if !known || !is("PROFILE", "release") {
        return;
    }
    println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    if glibc().is_some_and(|version| version >= GLIBC_MIN) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// The version of the library that what is built here will most likely run with.
fn glibc() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
