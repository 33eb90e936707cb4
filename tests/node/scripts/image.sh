#!/usr/bin/env bash
# An image of nothing but a folder: image.sh FOLDER OUT.tar NAME:TAG USER ENTRYPOINT...
#
# buildah runs without any network. It neither pulls anything nor changes the machine's own.
set -euo pipefail
folder="$(realpath "$1")" out="$(realpath -m "$2")" name="$3" user="$4"
shift 4
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
entrypoint="$(printf '"%s",' "$@")"
{
  printf 'FROM scratch\nCOPY . /\nUSER %s\n' "$user"
  printf 'ENTRYPOINT [%s]\n' "${entrypoint%,}"
} >"$work/Dockerfile"
rm -f "$out"
export folder out name work
unshare --net --mount --propagation private bash -euc '
  mkdir -p "$work/containers" /var/lib/containers
  mount --bind "$work/containers" /var/lib/containers
  buildah() { command buildah --root "$work/root" --runroot "$work/run" --storage-driver vfs "$@"; }
  buildah bud -q --isolation chroot --pull-never --timestamp 0 -f "$work/Dockerfile" -t "$name" "$folder" >/dev/null
  buildah push -q "$name" "oci-archive:$out:$name"
  buildah rmi -a -f >/dev/null'
