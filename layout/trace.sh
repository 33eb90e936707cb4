#!/usr/bin/env bash
# Writes layout/serving.txt anew: the functions of the shipped binary that run while the benches drive it. Those of an
# idle sidecar stand first: its supervisor runs few, and its worker runs most of them too.
#
# Needs what the benches need, a C compiler and binutils; x86-64 Linux. A quarter of an hour on two processors.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder="$PWD/target/trace"
binary="$folder/dist/listless"
export CARGO_TARGET_DIR="$folder" CARGO_PROFILE_DIST_STRIP=none
cargo build --locked --profile dist --bin listless
cc -O2 -Wall -shared -fPIC -o "$folder/trace.so" layout/trace.c

# The segment of code begins on a page; offsets count from there.
start="$(readelf -lW "$binary" | sed -nE 's/^ +LOAD +0x[0-9a-f]+ 0x([0-9a-f]+) .* R E .*/\1/p' | head -n 1)"
start=$((16#$start / 4096 * 4096))
nm --defined-only --format=posix "$binary" |
  while read -r name kind value _; do
    case "$kind" in [tTwW]) printf '%x %s\n' $((16#$value - start)) "$name" ;; esac
  done | LC_ALL=C sort >"$folder/functions"

# One slot on each side is enough: it is asked whether a function runs, not how fast.
cut -d ' ' -f 1 "$folder/functions" | LC_ALL=C sort -u >"$folder/offsets"
rm -rf "$folder/ran"
mkdir "$folder/ran"
LD_PRELOAD="$folder/trace.so" TRACED=/dist/listless FUNCTIONS="$folder/offsets" RAN="$folder/ran" \
  cargo bench --locked --bench proxy -- --profile dist --seconds 1 --rounds 1 --samples 200 ||
  ls "$folder"/ran/supervisor-* "$folder"/ran/worker-* "$folder"/ran/other-* # its gates mean nothing here

# names FILE...: of the functions at these offsets. The end of a name, a hash or the number of a copy, changes with
# every compiler and every dependency.
names() {
  LC_ALL=C sort -u "$@" | LC_ALL=C join - "$folder/functions" | cut -d ' ' -f 2 |
    sed -E 's/17h[0-9a-f]{16}E.*$//; s/(\.llvm)?\.[0-9]+$//' | LC_ALL=C sort -u
}
{
  echo "# Functions that ran in the benches, to be linked side by side; written by layout/trace.sh."
  { names "$folder"/ran/supervisor-*; names "$folder"/ran/worker-*; names "$folder"/ran/*; } | awk '!seen[$0]++'
} >layout/serving.txt
wc -l layout/serving.txt
