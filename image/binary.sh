#!/usr/bin/env bash
# The static binary of the image: image/binary.sh OUT [ARGUMENT of rustc when it links it]...
#
# Used by the Dockerfile and by image/build.sh alike. The same source and toolchain give the same bytes
# wherever the source lies: paths are mapped away and nothing of the time or the machine goes in.
set -euo pipefail
out="$(realpath -m "$1")"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target="${LISTLESS_TARGET:-$(uname -m)-unknown-linux-musl}"
key="${target//-/_}"
source="$PWD"
cargo="${CARGO_HOME:-$HOME/.cargo}"
folder="$(realpath -m "${CARGO_TARGET_DIR:-$source/target}")"

# C sources name their files too; the target folder holds what their build scripts write.
maps=("$folder=/build/target" "$source=/build" "$cargo=/cargo")
rust="" c=""
for map in "${maps[@]}"; do
  rust+=" --remap-path-prefix=$map"
  c+=" -ffile-prefix-map=$map"
done
# How often each branch is taken; see layout/README.md. Flags in LISTLESS_PROFILE replace it. The file is named by its
# content, so that cargo sees a new one.
if [ "$target" = x86_64-unknown-linux-musl ]; then
  profile="$folder/$(sha256sum <layout/profile.profdata | cut -c 1-16).profdata"
  mkdir -p "$folder"
  cp layout/profile.profdata "$profile"
  rust+=" ${LISTLESS_PROFILE--Cprofile-use=$profile}"
fi
unset CARGO_ENCODED_RUSTFLAGS
export RUSTFLAGS="${rust# }" CARGO_INCREMENTAL=0
export "CFLAGS_$key=${c# }" "CC_$key=${LISTLESS_CC:-musl-gcc}"
# Rust's own linker, which knows the options of build.rs.
export "CARGO_TARGET_${key^^}_LINKER=rust-lld"
# Nothing in the binary is dated. A new date would compile every crate again.
export SOURCE_DATE_EPOCH=0

# Nobody needs the demo and its simulator in a cluster.
cargo rustc --locked --no-default-features --profile dist --bin listless --target "$target" -- "${@:2}"
mkdir -p "$(dirname "$out")"
# A process may still run the old one.
cp --remove-destination "$folder/$target/dist/listless" "$out"
