#!/usr/bin/env bash
# Writes layout/serving.txt anew: the functions of the shipped binary that run while the benches drive it, in the order
# of their first runs: what only a start needs lies apart from what serves. Those of an idle sidecar stand first: its
# supervisor runs few, and its worker runs most of them too.
#
# Needs what the benches and the image need, and binutils; x86-64 Linux. A quarter of an hour on two processors.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder="$PWD/target/trace"
binary="$folder/listless"
mkdir -p "$folder"
musl-gcc -O2 -Wall -c -fPIC -o "$folder/trace.o" layout/trace.c
image/binary.sh "$binary" -C strip=none -C link-arg="$folder/trace.o"

# The segment of code begins on a page; offsets count from there.
start="$(readelf -lW "$binary" | sed -nE 's/^ +LOAD +0x[0-9a-f]+ 0x([0-9a-f]+) .* R E .*/\1/p' | head -n 1)"
start=$((16#$start / 4096 * 4096))
nm --defined-only --format=posix "$binary" |
  while read -r name kind value _; do
    case "$kind" in [tTwW]) printf '%x %s\n' $((16#$value - start)) "$name" ;; esac
  done | LC_ALL=C sort >"$folder/functions"

# The C library blocks all signals now and then, so its functions have no breakpoints: they are small, and all stand
# among the first.
library="$(rustc --print sysroot)/lib/rustlib/x86_64-unknown-linux-musl/lib/self-contained/libc.a"
nm --defined-only --format=posix "$library" 2>/dev/null |
  awk 'NR == FNR { if ($2 ~ /^[tTwW]$/) inside[$1]; next } $2 in inside { print $1 }' - "$folder/functions" |
  LC_ALL=C sort -u >"$folder/library"
cut -d ' ' -f 1 "$folder/functions" | LC_ALL=C sort -u | LC_ALL=C comm -23 - "$folder/library" >"$folder/offsets"

# One slot on each side is enough: it is asked whether a function runs, not how fast.
rm -rf "$folder/ran"
mkdir "$folder/ran"
FUNCTIONS="$folder/offsets" RAN="$folder/ran" \
  cargo bench --locked --bench proxy -- --program "$binary" --seconds 1 --rounds 1 --samples 200 ||
  ls "$folder"/ran/supervisor-* "$folder"/ran/worker-* "$folder"/ran/other-* # its gates mean nothing here

# names FILE...: of the functions at these offsets, in their order. The end of a name, a hash or the number of a copy,
# changes with every compiler and every dependency.
names() {
  awk 'NR == FNR { names[$1] = names[$1] $2 "\n"; next } { printf "%s", names[$1] }' "$folder/functions" "$@" |
    sed -E 's/17h[0-9a-f]{16}E.*$//; s/(\.llvm)?\.[0-9]+$//'
}
mapfile -t others < <(ls -v "$folder"/ran/other-*)
{
  echo "# Functions that ran in the benches, to be linked side by side; written by layout/trace.sh."
  names "$folder"/ran/supervisor-* "$folder/library" "$folder"/ran/worker-* "${others[@]}" | awk '!seen[$0]++'
} >layout/serving.txt
wc -l layout/serving.txt
