#!/usr/bin/env bash
# The first process of a node's namespaces: init.sh FOLDER NAME NODE_IP HOST_IP SERVICE_RANGE
#
# All programs and pods of the node descend from it. Its end is therefore theirs, and that of every
# mount, interface and rule here. It changes nothing outside: the node writes to FOLDER, and its
# sysctls are its own network's.
set -euo pipefail
folder="$1" name="$2" node="$3" host="$4" services="$5"

mount --make-rshared /
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/netns /run/lock "$folder/var/lib" "$folder/var/log"
mount --bind "$folder/var/lib" /var/lib
mount --bind "$folder/var/log" /var/log
hostname "$name"
ip link set lo up

# The other end is moved in from outside.
until ip link show eth0 >/dev/null 2>&1; do sleep 0.05; done
sysctl -qw net.ipv6.conf.eth0.disable_ipv6=1
# Services are translated to pods only after a route was found. The route must exist, and must not
# leave the node.
ip addr add "$node/30" dev eth0
# Packets for neither the node nor the other end are counted and dropped.
nft -f - <<K
table netdev leaving {
  counter stray { }
  chain eth0 {
    type filter hook egress device eth0 priority 0; policy accept;
    ip saddr $node ip daddr $host accept
    arp daddr ip $host accept
    counter name stray drop
  }
}
K
ip link set eth0 up
ip route add "$services" dev lo src "$node"
ip route add unreachable default
sysctl -qw net.ipv4.ip_forward=1
[ ! -e /proc/sys/net/bridge/bridge-nf-call-iptables ] || sysctl -qw net.bridge.bridge-nf-call-iptables=1

touch /run/node-stands
trap 'exit 0' TERM INT
while :; do
  sleep 3600 &
  wait $!
done
