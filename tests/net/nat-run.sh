#!/bin/sh
# nat-run.sh STRAIT HELPER - two workers at home, each behind a router that translates addresses and lets
# nobody in (nftables masquerade), own both stages: they reach the host and each other's public address,
# but neither can be dialled. Beside them are spares with public addresses; later there is none, but a
# relay. The run must make a step within seconds each time. Needs root, ip and nft; skips otherwise.
. "$(dirname "$0")/../cli/lib.sh"
. "$(dirname "$0")/../cli/swarm_lib.sh"
LIMIT=${LIMIT:-30} # seconds to the first step
[ "$(id -u)" = 0 ] || { echo "skipped: needs root"; exit 77; }
command -v ip >/dev/null && command -v nft >/dev/null || { echo "skipped: needs ip and nft"; exit 77; }
tag=nat$$

clean_net() {
    for name in net host public home1 home2 router1 router2; do ip netns del "$tag-$name" 2>/dev/null; done
    clean_up
}
trap clean_net EXIT

# plug NAME ADDRESS: connects a namespace to the public network.
plug() {
    ip netns add "$tag-$1"
    ip -n "$tag-$1" link set lo up
    ip -n "$tag-$1" link add public0 type veth peer name "to-$1" netns "$tag-net"
    ip -n "$tag-net" link set "to-$1" master bridge0 up
    ip -n "$tag-$1" addr add "$2/24" dev public0
    ip -n "$tag-$1" link set public0 up
}

# home I: a router with a public address, and a private network behind it with one machine.
home() {
    plug "router$1" "10.99.0.1$1"
    ip netns add "$tag-home$1"
    ip -n "$tag-home$1" link set lo up
    ip -n "$tag-home$1" link add lan0 type veth peer name lan0 netns "$tag-router$1"
    ip -n "$tag-router$1" addr add "192.168.$1.1/24" dev lan0
    ip -n "$tag-router$1" link set lan0 up
    ip -n "$tag-home$1" addr add "192.168.$1.2/24" dev lan0
    ip -n "$tag-home$1" link set lan0 up
    ip -n "$tag-home$1" route add default via "192.168.$1.1"
    ip netns exec "$tag-router$1" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
    ip netns exec "$tag-router$1" nft -f - <<END
table ip home {
    chain leaving { type nat hook postrouting priority 100; oifname "public0" masquerade; }
    chain passing {
        type filter hook forward priority 0; policy drop;
        iifname "lan0" accept
        ct state established,related accept
    }
}
END
}

# on NAME ARGS...: runs strait in a namespace.
on() {
    where=$1
    shift
    ip netns exec "$tag-$where" env STRAIT_CLI="$SCRATCH" "$STRAIT" "$@"
}

# worker FOLDER NAME N: starts worker N.
worker() {
    on "$2" join "$(cat "$1.invite")" --keys "keys-$3" --name "w$3" --threads 1 >/dev/null \
        2>>"join-$3.err" </dev/null &
}

# hosts FOLDER ARGS...: starts a host.
hosts() {
    folder=$1
    shift
    on host host run.yaml --out "$folder" $sets --listen 10.99.0.1:7070 --keys keys-host "$@" \
        >"$folder.invite" 2>>"$HOST_LOG" </dev/null &
    HOST=$!
    wait_for_text "$folder.invite" .
}

# advances FOLDER CASE: waits for the first step and the end of the run.
advances() {
    LONGEST=$LIMIT fault=$2
    wait_until "$LIMIT" "$2: a step" has_reached_step "$1" 1 || fail "$2: the run has ended"
    echo "$2: $(($(now_ms) - began)) ms to the first step"
    host_ends 0 "$2"
    same_metrics straight "$1"
    same_weights straight "$1"
}

ip netns add "$tag-net" && ip netns exec "$tag-net" true ||
    { echo "skipped: cannot create and enter network namespaces"; exit 77; }
ip -n "$tag-net" link add bridge0 type bridge
ip -n "$tag-net" link set bridge0 up
plug host 10.99.0.1
plug public 10.99.0.2
home 1 2>/dev/null && home 2 2>/dev/null || { echo "skipped: cannot translate addresses"; exit 77; }

make_corpus
make_run run.yaml 2 30
sets="--set stages.count=2 --set link.deadline=5s"
runs train run.yaml --out straight --set stages.count=2

hosts spares
for i in 1 2; do worker spares home$i $i; done
wait_joined spares 2
began=$(now_ms)
worker spares public 3
advances spares "two home networks and a spare"
wait_all_exited
says spares/events.log 'its boundary with the (previous|next) stage failed' 'moving the stage to w3'

# Without a spare, the relay is tried by itself.
ip netns exec "$tag-host" env STRAIT_CLI="$SCRATCH" "$STRAIT" relay --listen 10.99.0.1:7071 >relay.out \
    2>relay.err </dev/null &
relay=$!
wait_for_text relay.out 'relay at'
rm -rf keys-1 keys-2
hosts relayed --relay 10.99.0.1:7071
for i in 1 2; do worker relayed home$i $i; done
wait_joined relayed 2
began=$(now_ms)
advances relayed "two home networks and a relay"
kill -INT $relay
wait_all_exited
