//! Sets linker options that keep less of the shipped binary in memory.

use std::{env, fs, path::Path};

const MUSL: &str = "x86_64-unknown-linux-musl";

/// The functions that ran between the start and the end of the benches. See `layout/README.md`.
const SERVING: &str = "layout/serving.txt";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={SERVING}");
    // As `image/binary.sh` builds it. Of glibc's loaders, only some read compact relocations.
    if !is("TARGET", MUSL) || !is("RUSTC_LINKER", "rust-lld") {
        return;
    }
    println!("cargo::rustc-link-arg-bins=--icf=all");
    println!("cargo::rustc-link-arg-bins=--pack-dyn-relocs=relr");
    println!("cargo::rustc-link-arg-bins=-zkeep-text-section-prefix");
    println!("cargo::rustc-link-arg-bins=--script={}", layout());
}

fn is(variable: &str, value: &str) -> bool {
    env::var(variable).is_ok_and(|text| text == value)
}

/// Returns a linker script that places the serving functions side by side. A missing or extra name
/// has no effect except on the page layout.
fn layout() -> String {
    let names = fs::read_to_string(SERVING).expect("a list of functions");
    let sections: String =
        names.lines().filter(|line| !line.starts_with('#')).map(sections).collect();
    let script =
        format!("SECTIONS {{\n  .text.serving : {{\n{sections}  }}\n}}\nINSERT BEFORE .text;\n");
    let folder = env::var("OUT_DIR").expect("cargo sets the output folder of a build script");
    let file = Path::new(&folder).join("layout.ld");
    fs::write(&file, script).expect("a writable folder");
    file.display().to_string()
}

/// Returns the sections of a function. Those that run most are in sections with another name, side by
/// side already.
fn sections(name: &str) -> String {
    format!("    *(.text.{name} .text.{name}.* .text.unlikely.{name} .text.unlikely.{name}.*)\n")
}
