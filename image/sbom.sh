#!/usr/bin/env bash
# The parts of the binary: image/sbom.sh FOLDER
#
# Writes FOLDER/sbom.spdx.json (SPDX 2.3) and FOLDER/licenses/: our licence, and a list of every crate
# with its licence, followed by the texts. All of it follows from Cargo.lock and the crates' sources.
set -euo pipefail
mkdir -p "$1/licenses"
out="$(realpath "$1")"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export LC_ALL=C

target="${LISTLESS_TARGET:-$(uname -m)-unknown-linux-musl}"
created="$(date -u -d "@${SOURCE_DATE_EPOCH:-0}" +%Y-%m-%dT%H:%M:%SZ)"
toolchain="$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

awk '/^name = /{gsub("\"", ""); name = $3} /^version = /{gsub("\"", ""); version = $3}
     /^checksum = /{gsub("\"", ""); print name, version, $3}' Cargo.lock >"$work/lock"
cargo metadata --locked --format-version 1 --filter-platform "$target" |
  jq --rawfile lock "$work/lock" -f image/materials.jq >"$work/materials.json"
digest="$(sha256sum Cargo.lock | cut -d' ' -f1)"
jq --arg created "$created" --arg digest "$digest" --arg toolchain "$toolchain" \
  -f image/spdx.jq "$work/materials.json" >"$out/sbom.spdx.json"

# Crates share most of their texts: each is written once, after the crates it is of.
{
  printf 'What the program listless is made of, beside its own source.\n\n'
  jq -r '.[] | select(.name != "listless") | "\(.name) \(.version): \(.license)"' "$work/materials.json"
  jq -r '.[] | select(.name != "listless") | "\(.name) \(.version)\t\(.manifest)"' "$work/materials.json" |
    while IFS=$'\t' read -r crate manifest; do
      find "$(dirname "$manifest")" -maxdepth 1 -type f \
        \( -iname 'licen[cs]e*' -o -iname 'copying*' -o -iname 'notice*' -o -iname 'copyright*' \) | sort |
        while read -r file; do
          text="$(sha256sum "$file" | cut -d' ' -f1)"
          cp "$file" "$work/text-$text"
          printf '%s\n' "$crate" >>"$work/of-$text"
        done
    done
  for of in "$work"/of-*; do
    printf '\n%s\n' '--------------------------------------------------------------------------------'
    paste -sd, "$of" | sed 's/,/, /g' | fold -s -w 80
    printf '\n'
    cat "$work/text-${of##*/of-}"
  done
} >"$out/licenses/THIRD-PARTY.txt"
cp LICENSE "$out/licenses/LICENSE"
crates="$(jq 'length - 1' "$work/materials.json")"
without="$(jq -r '.[] | select(.license == "NOASSERTION") | .name' "$work/materials.json")"
if [ -n "$without" ]; then
  printf 'no licence is stated by: %s\n' "$without" >&2
  exit 1
fi
printf 'materials: %s crates, each with a licence\n' "$crates"
