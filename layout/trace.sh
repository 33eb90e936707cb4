#!/usr/bin/env bash
# Writes layout/serving.txt anew: the functions of the shipped binary that run while the benches drive it.
#
# Needs what the benches need and, of the toolchain, the component llvm-tools. Half an hour on two processors.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

traces="$PWD/target/trace/profiles"
tools="$(rustc --print sysroot)/lib/rustlib/$(rustc --print host-tuple)/bin"
[ -x "$tools/llvm-profdata" ] || rustup component add llvm-tools
rm -rf "$traces"
mkdir -p target/trace

# names: one function a line, without the hash at its end and without the module before it.
names() { sed -E 's/^.*;//; s/17h[0-9a-f]{16}E.*$//' | grep '^_ZN' | LC_ALL=C sort -u; }

# Counted before anything is inlined: which functions are is decided anew with every change. One slot on
# each side is enough, for it is asked whether a function runs, not how fast.
CARGO_TARGET_DIR=target/trace/counting RUSTFLAGS="-Cprofile-generate=$traces -Cllvm-args=-disable-preinline" \
  cargo bench --locked --bench proxy -- --seconds 1 --rounds 1 --samples 200

# The harness leaves a profile, too, which knows nothing of the program's own main.
for profile in "$traces"/*.profraw; do
  "$tools/llvm-profdata" show --covered "$profile" >"$profile.names"
  grep -q '_ZN8listless4main17h' "$profile.names" || rm "$profile.names"
done
cat "$traces"/*.names | names >target/trace/ran

# What is inlined everywhere is no function any more.
CARGO_TARGET_DIR=target/trace/plain CARGO_PROFILE_RELEASE_STRIP=none cargo build --locked --release --bin listless
"$tools/llvm-nm" --defined-only --format=just-symbols target/trace/plain/release/listless | names >target/trace/linked

{
  echo "# Functions that ran in the benches, to be linked side by side; written by layout/trace.sh."
  LC_ALL=C comm -12 target/trace/ran target/trace/linked
} >layout/serving.txt
wc -l layout/serving.txt
