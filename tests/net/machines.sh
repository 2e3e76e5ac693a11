# machines.sh - machines for the scripts of this folder: network namespaces with addresses of their own,
# each behind a link of 80 Mb/s, or as rate_of_machine says, and 30 ms that wan.c emulates. Needs root, ip and TUN; skips otherwise.
#
# Machine i, from 0, is namespace m-i with address 10.(100+i).0.1; its link ends in g-i, its gateway;
# the gateways are connected by a bridge in the namespace backbone. Source it after lib.sh; WAN is the
# path of wan.c's program.
tag=sw$$
MACHINES=

clean_net() {
    for i in $MACHINES; do
        [ -s "$SCRATCH/wan-$i.pid" ] && kill -9 "$(cat "$SCRATCH/wan-$i.pid")" 2>/dev/null
        ip netns del "$tag-m$i" 2>/dev/null
        ip netns del "$tag-g$i" 2>/dev/null
    done
    ip netns del "$tag-backbone" 2>/dev/null
    clean_up
}

# rate_of_machine I: prints the bits per second of its link. A script may define another.
rate_of_machine() {
    echo 80e6
}

# machine_begin I: creates machine I and starts its link, which is up some moments later.
machine_begin() {
    ip netns add "$tag-m$1"
    ip netns add "$tag-g$1"
    ip -n "$tag-m$1" link set lo up
    ip -n "$tag-g$1" link add up0 type veth peer name "down$1" netns "$tag-backbone"
    ip -n "$tag-backbone" link set "down$1" master bridge0
    ip -n "$tag-backbone" link set "down$1" up
    ip -n "$tag-g$1" addr add "10.99.0.$(($1 + 1))/24" dev up0
    ip -n "$tag-g$1" link set up0 up
    ip netns exec "$tag-g$1" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
    "$WAN" "$(rate_of_machine "$1")" 30 "$tag-m$1" "10.10$1.0.1" "$tag-g$1" "10.10$1.0.2" <hold >"wan-$1.out" 3>&- &
    echo $! >"wan-$1.pid"
}

# machines_begin N: creates N machines and waits until their links are up.
machines_begin() {
    [ "$(id -u)" = 0 ] || { echo "skipped: needs root"; exit 77; }
    command -v ip >/dev/null || { echo "skipped: needs ip (package iproute2)"; exit 77; }
    [ -c /dev/net/tun ] || { echo "skipped: needs /dev/net/tun"; exit 77; }
    trap clean_net EXIT
    mkfifo hold
    exec 3<>hold # the links last as long as this is open
    ip netns add "$tag-backbone" && ip netns exec "$tag-backbone" true ||
        { echo "skipped: cannot create and enter network namespaces"; exit 77; }
    ip -n "$tag-backbone" link add bridge0 type bridge
    ip -n "$tag-backbone" link set bridge0 up
    for i in $(seq 0 $(($1 - 1))); do
        MACHINES="$MACHINES $i"
        machine_begin "$i"
    done
    for i in $MACHINES; do
        for _ in $(seq $((PATIENCE * 20))); do
            grep -q up "wan-$i.out" && break
            sleep 0.05
        done
        grep -q up "wan-$i.out" || { echo "skipped: no wide-area link"; exit 77; }
        ip -n "$tag-m$i" route add default via "10.10$i.0.2"
        routes_to_others "$i" via
    done
}

# routes_to_others I via|blackhole: what the gateway of machine I does with packets to the others.
routes_to_others() {
    for other in $MACHINES; do
        [ "$1" = "$other" ] && continue
        if [ "$2" = via ]; then
            ip -n "$tag-g$1" route replace "10.10$other.0.0/16" via "10.99.0.$((other + 1))"
        else
            ip -n "$tag-g$1" route replace blackhole "10.10$other.0.0/16"
        fi
    done
}

# on I ARGS...: runs strait on machine I.
on() {
    machine=$1
    shift
    ip netns exec "$tag-m$machine" env STRAIT_CLI="$SCRATCH" "$STRAIT" "$@"
}

# swarm_begin FOLDER WORKER...: starts a host on machine 0 and a worker with its invite on each other.
swarm_begin() {
    folder=$1
    shift
    on 0 host run.yaml --out "$folder" --set stages.count=2 --listen 10.100.0.1:7070 --keys keys-0 \
        >"$folder.invite" 2>>"$HOST_LOG" </dev/null &
    HOST=$!
    wait_for_text "$folder.invite" .
    for i in "$@"; do
        on "$i" join "$(cat "$folder.invite")" --keys "keys-$i" --name "m$i" --threads 1 \
            >/dev/null 2>>"join-$i.err" </dev/null &
    done
}
