//! Sets linker options that keep less of the shipped binary in memory, if linker and loader support
//! them.

use std::{env, fs, path::Path, process::Command};

const GLIBC: &str = "x86_64-unknown-linux-gnu";
/// Its loader, which is in the binary, reads compact relative relocations.
const MUSL: &str = "x86_64-unknown-linux-musl";

/// The first glibc version whose loader reads compact relative relocations.
const GLIBC_MIN: (u32, u32) = (2, 36);

/// The functions that ran between the start and the end of the benches. See `layout/README.md`.
const SERVING: &str = "layout/serving.txt";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={SERVING}");
    // The profiles `dev` and `release`, which are not shipped, optimize less.
    let shipped = !is("OPT_LEVEL", "0") && !is("OPT_LEVEL", "1");
    let Some(prefix) = prefix().filter(|_| shipped) else { return };
    println!("cargo::rustc-link-arg-bins={prefix}--icf=all");
    println!("cargo::rustc-link-arg-bins={prefix}--script={}", layout());
    if is("TARGET", MUSL) || glibc().is_some_and(|version| version >= GLIBC_MIN) {
        println!("cargo::rustc-link-arg-bins={prefix}--pack-dyn-relocs=relr");
    }
}

fn is(variable: &str, value: &str) -> bool {
    env::var(variable).is_ok_and(|text| text == value)
}

/// Returns what stands before an option of Rust's own linker, if that is the linker: the C compiler
/// starts it on this platform, and `image/binary.sh` names it.
fn prefix() -> Option<&'static str> {
    if is("TARGET", GLIBC) && is("HOST", GLIBC) {
        return Some("-Wl,");
    }
    (is("TARGET", MUSL) && is("RUSTC_LINKER", "rust-lld")).then_some("")
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

/// Returns the sections of a function. Its name is followed by a hash or a copy number, which
/// differ between versions of the compiler and of a dependency.
fn sections(name: &str) -> String {
    if name.starts_with("_ZN") {
        return format!("    *(.text.{name}17h* .text.unlikely.{name}17h*)\n");
    }
    format!("    *(.text.{name} .text.{name}.* .text.unlikely.{name} .text.unlikely.{name}.*)\n")
}

/// Returns the version of the C library that this build will probably run with.
fn glibc() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
