//! Links the shipped binary so that less of it is mapped, where linker and loader can.

use std::{env, fs, path::Path, process::Command};

/// From this version on glibc's loader reads relative relocations in their compact form.
const GLIBC_MIN: (u32, u32) = (2, 36);

/// Functions that ran between the start and the end of the benches. `layout/README.md` says more.
const SERVING: &str = "layout/serving.txt";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={SERVING}");
    let is = |variable: &str, value: &str| env::var(variable).is_ok_and(|text| text == value);
    // The linker that comes with the toolchain on this platform knows all of these options.
    let known = is("TARGET", "x86_64-unknown-linux-gnu") && is("HOST", "x86_64-unknown-linux-gnu");
    if !known || !is("OPT_LEVEL", "z") {
        return;
    }
    println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    println!("cargo::rustc-link-arg-bins=-Wl,-T,{}", layout());
    if glibc().is_some_and(|version| version >= GLIBC_MIN) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// A script for the linker that has the functions that serve stand side by side. A name that no
/// longer exists is none of its business, and neither is one that is missing: then a page holds both.
fn layout() -> String {
    let names = fs::read_to_string(SERVING).expect("a list of functions");
    let sections: String =
        names.lines().filter(|line| !line.starts_with('#')).map(sections).collect();
    let script =
        format!("SECTIONS {{\n  .text.serving : {{\n{sections}  }}\n}}\nINSERT BEFORE .text;\n");
    let folder = env::var("OUT_DIR").expect("cargo tells a build script where to write");
    let file = Path::new(&folder).join("layout.ld");
    fs::write(&file, script).expect("a folder that can be written to");
    file.display().to_string()
}

/// Where the compiler puts a function. After a name comes a hash or the number of a copy, which every
/// version of the compiler and of a dependency changes.
fn sections(name: &str) -> String {
    if name.starts_with("_ZN") {
        return format!("    *(.text.{name}17h* .text.unlikely.{name}17h*)\n");
    }
    format!("    *(.text.{name} .text.{name}.* .text.unlikely.{name} .text.unlikely.{name}.*)\n")
}

/// The version of the library that what is built here will most likely run with.
fn glibc() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
