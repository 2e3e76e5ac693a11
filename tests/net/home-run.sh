#!/bin/sh
# home-run.sh TEST - compares an emulated home with one behind token buckets of the kernel.
#
# A home exchanges messages with two others, each in a network namespace of its own on one bridge.
# One bucket (tc tbf) is for all that leaves the home, one for all that enters it. TEST (home.c)
# measures the same transfers over them and over emulated links: the rates must agree within 5%, and
# within 12% with traffic both ways at once.
# Needs root, ip and tc; skipped otherwise.
set -eu
test=$1
[ "$(id -u)" = 0 ] || { echo "skipped: needs root"; exit 77; }
command -v ip >/dev/null && command -v tc >/dev/null ||
    { echo "skipped: needs ip and tc (package iproute2)"; exit 77; }

tag=sh$$
clean() {
    for i in 0 1 2; do
        ip link del "$tag-$i" 2>/dev/null || true
        ip netns del "$tag-$i" 2>/dev/null || true
    done
    ip link del "$tag" 2>/dev/null || true
}
trap clean EXIT

# place I - the namespace of one of them.
place() {
    ip netns add "$tag-$1" && ip netns exec "$tag-$1" true ||
        { echo "skipped: cannot create and enter network namespaces"; exit 77; }
    ip link add "$tag-$1" type veth peer name internet netns "$tag-$1"
    ip link set "$tag-$1" master "$tag" up
    ip -n "$tag-$1" addr add "10.197.0.1$1/24" dev internet
    ip -n "$tag-$1" link set internet up
    ip -n "$tag-$1" link set lo up
}
ip link add "$tag" type bridge 2>/dev/null || { echo "skipped: no bridge"; exit 77; }
ip link set "$tag" up
for i in 0 1 2; do place $i; done
bucket="root tbf rate 20mbit burst 16kb latency 200ms"
ip netns exec "$tag-0" tc qdisc add dev internet $bucket && tc qdisc add dev "$tag-0" $bucket ||
    { echo "skipped: no token bucket (tbf) in this kernel"; exit 77; }
for attempt in 1 2 3; do
    "$test" 20 "$tag-0" "$tag-1" "$tag-2" && exit 0
done
exit 1
