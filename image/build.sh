#!/usr/bin/env bash
# The image, built twice and compared: image/build.sh OUT.tar [NAME:TAG]
#
# OUT.tar is an OCI archive. Nothing is pulled and no packet leaves: buildah runs in a network of its
# own that has no link. So the Dockerfile's first stage, which needs a registry, does not run; image/
# binary.sh and image/sbom.sh, which are all it does, run here, and its last stage takes their output.
#
#   LISTLESS_BINARY=FILE   a static binary that is there already, instead of building one
#   LISTLESS_REBUILD=1     build the binary once more, from a copy of the source elsewhere, and compare
set -euo pipefail
out="$(realpath -m "$1")"
name="${2:-listless:$(sed -n 's/^version = "\(.*\)"/\1/p' "$(dirname "${BASH_SOURCE[0]}")/../Cargo.toml" | sed -n 1p)}"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# The goal, compressed as it is pulled.
SIZE_MAX=$((12 * 1024 * 1024))

SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}"
export SOURCE_DATE_EPOCH
revision="$(git rev-parse HEAD)"
git diff --quiet HEAD || revision+="-dirty"
created="$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/stage/out" "$work/context"

if [ -n "${LISTLESS_BINARY:-}" ]; then
  cp "$LISTLESS_BINARY" "$work/stage/out/listless"
else
  image/binary.sh "$work/stage/out/listless"
fi
if ldd "$work/stage/out/listless" 2>&1 | grep -q '=>'; then
  printf 'the binary needs shared libraries\n' >&2
  exit 1
fi
if [ -n "${LISTLESS_REBUILD:-}" ]; then
  mkdir "$work/elsewhere"
  git archive HEAD | tar -x -C "$work/elsewhere"
  CARGO_TARGET_DIR="$work/elsewhere/other-target" "$work/elsewhere/image/binary.sh" "$work/again"
  cmp "$work/stage/out/listless" "$work/again"
  printf 'binary: the same bytes from two folders\n'
fi
image/sbom.sh "$work/stage/out"
chmod 755 "$work/stage/out/listless"

# The last stage alone, with the first one's output in its place.
sed -n '/^FROM scratch/,$p' Dockerfile >"$work/Dockerfile"
export work name revision created SOURCE_DATE_EPOCH
version="${name##*:}"
export version

# build NUMBER: an OCI archive of the image at $work/NUMBER.tar
build() {
  number="$1" unshare --net --mount --propagation private bash -euc '
    mkdir -p "$work/containers" /var/lib/containers
    mount --bind "$work/containers" /var/lib/containers
    buildah() { command buildah --root "$work/root-$number" --runroot "$work/run-$number" --storage-driver vfs "$@"; }
    buildah bud -q --isolation chroot --pull-never --timestamp "$SOURCE_DATE_EPOCH" \
      --build-context "build=$work/stage" --build-arg "VERSION=$version" --build-arg "REVISION=$revision" \
      --build-arg "CREATED=$created" -f "$work/Dockerfile" -t "$name" "$work/context" >/dev/null
    buildah push -q "$name" "oci-archive:$work/$number.tar:$name"
    buildah rmi -a -f >/dev/null'
}

# digest NUMBER: of the archive's manifest
digest() { tar -xOf "$work/$1.tar" index.json | jq -r '.manifests[0].digest'; }

build 1
build 2
first="$(digest 1)"
if [ "$first" != "$(digest 2)" ]; then
  printf 'two builds of the image differ: %s and %s\n' "$first" "$(digest 2)" >&2
  exit 1
fi
manifest="$(tar -xOf "$work/1.tar" "blobs/sha256/${first#sha256:}")"
size="$(jq '[.layers[].size] | add' <<<"$manifest")"
config="$(tar -xOf "$work/1.tar" "blobs/sha256/$(jq -r '.config.digest' <<<"$manifest" | cut -d: -f2)")"
jq --exit-status '.config | .User == "65532:65532" and .Entrypoint == ["/listless"]
  and .Labels["org.opencontainers.image.licenses"] == "Apache-2.0" and (.Env // [] | length) <= 1' <<<"$config" >/dev/null
mkdir -p "$(dirname "$out")"
mv "$work/1.tar" "$out"
printf 'image: %s %s\n' "$name" "$first"
printf 'proof: image: %d bytes compressed in %d layers, binary %d bytes, two builds of it have one digest\n' \
  "$size" "$(jq '.layers | length' <<<"$manifest")" "$(stat -c %s "$work/stage/out/listless")"
if [ "$size" -gt "$SIZE_MAX" ]; then
  printf 'the image is larger than %d bytes\n' "$SIZE_MAX" >&2
  exit 1
fi
