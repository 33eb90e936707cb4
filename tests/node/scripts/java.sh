#!/usr/bin/env bash
# A folder with a Java runtime and a fabric8 program: java.sh OUT PROGRAM
#
# Nothing can be pulled. The runtime is therefore made of the machine's own JDK. Every shared
# library that it loads is copied where the loader looks first.
set -euo pipefail
out="$(realpath -m "$1")" program="$(realpath "$2")"
java="$(dirname "$(dirname "$(readlink -f "$(command -v javac)")")")"
modules=java.logging,java.management,java.naming,java.net.http,java.security.sasl,java.sql,java.xml
modules+=,jdk.crypto.ec,jdk.unsupported,jdk.zipfs
rm -rf "$out"
mkdir -p "$out/app" "$out/tmp"
chmod 1777 "$out/tmp"
"$java/bin/jlink" --module-path "$java/jmods" --add-modules "$modules" \
  --strip-java-debug-attributes --no-man-pages --no-header-files --output "$out/java"
cp "$program/poller.jar" "$out/app/"
cp -r "$program/libraries" "$out/app/"
find "$out/java" -type f \( -name '*.so' -o -path '*/bin/java' \) -exec ldd {} + 2>/dev/null |
  sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p; s/^\t\(\/[^ ]*ld-linux[^ ]*\) .*/\1/p' | sort -u |
  while read -r library; do
    case "$library" in "$out"/*) continue ;; esac
    mkdir -p "$out$(dirname "$library")"
    cp -L "$library" "$out$library"
  done
