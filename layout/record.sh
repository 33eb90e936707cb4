#!/usr/bin/env bash
# Records what the shipped binary runs while the benches drive it: how often each branch is taken, for the compiler
# (layout/profile.profdata), and which functions run at all, for the linker (layout/serving.txt). Those of an idle
# sidecar stand first: its supervisor runs few, and its worker runs most of them too.
#
# Needs what the benches and the image need, and binutils; x86-64 Linux. Half an hour on two processors.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder="$PWD/target/record"
binary="$folder/listless"
rm -rf "$folder"
mkdir -p "$folder/ran" "$folder/counted"
rustup component add llvm-tools
tool=("$(rustc --print sysroot)"/lib/rustlib/*/bin/llvm-profdata)
musl-gcc -O2 -Wall -c -fPIC -o "$folder/trace.o" layout/trace.c
LISTLESS_PROFILE="-Cprofile-generate=$folder/counted" \
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

# drive CELL...: runs these cells. One slot on each side is enough. The binary that counts is slow: its gates mean
# nothing, and PB2, whose clients take 27 MB at a time, would get errors.
drive() {
  local cells=()
  for cell; do cells+=(--cell "$cell"); done
  FUNCTIONS="$folder/offsets" RAN="$folder/ran" LLVM_PROFILE_FILE="$folder/counted/$1-%p.profraw" \
    cargo bench --locked --bench proxy -- --program "$binary" --seconds 1 --rounds 1 --samples 300 "${cells[@]}" ||
    ls "$folder/counted/$1"-*.profraw
}
drive P1 P2 P3 P4 P5 P6 P7 P8 F1 PG1 PB1
drive R1 R2 T1 P15 P18 P20 sidecar

# A relayed request runs more code than a read, and fewer of them are sent in the same time.
"${tool[0]}" merge -sparse -o layout/profile.profdata \
  "$folder"/counted/P1-* $(printf -- '--weighted-input=10,%s ' "$folder"/counted/R1-*)

# names FILE...: of the functions at these offsets, in their order.
names() { awk 'NR == FNR { names[$1] = names[$1] $2 "\n"; next } { printf "%s", names[$1] }' "$folder/functions" "$@"; }
mapfile -t others < <(ls -v "$folder"/ran/other-*)
{
  echo "# Functions that ran in the benches, to be linked side by side; written by layout/record.sh."
  names "$folder"/ran/supervisor-* "$folder/library" "$folder"/ran/worker-* "${others[@]}"
  # These are inlined in the binary that counts, and perhaps not in the one that ships.
  "${tool[0]}" show --all-functions layout/profile.profdata | sed -n 's/^  \([^ ].*\):$/\1/p' | sed 's/^.*;//'
} | sed -E 's/(\.llvm)?\.[0-9]+$//' | awk '!seen[$0]++' >layout/serving.txt
wc -l layout/serving.txt
