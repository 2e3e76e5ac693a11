#!/bin/sh
# swarm-run.sh STRAIT HELPER WAN - three machines, as network namespaces with addresses of their own,
# each behind a line of 80 Mb/s and 30 ms: one hosts, two join by the pasted invite and train to the
# end; then lines are cut, shortly and for long. Needs root, ip and TUN; says so otherwise.
. "$(dirname "$0")/../cli/lib.sh"
. "$(dirname "$0")/../cli/swarm_lib.sh"
WAN=$3
[ "$(id -u)" = 0 ] || { echo "skipped: needs root"; exit 77; }
command -v ip >/dev/null || { echo "skipped: needs ip (package iproute2)"; exit 77; }
[ -c /dev/net/tun ] || { echo "skipped: needs /dev/net/tun"; exit 77; }

# Machine i is namespace m-i with address 10.(100+i).0.1; its line ends in g-i, which routes; the g's
# meet on a bridge in the namespace sky.
tag=sw$$
clean_net() {
    for i in 0 1 2; do
        [ -s "$SCRATCH/wan-$i.pid" ] && kill -9 "$(cat "$SCRATCH/wan-$i.pid")" 2>/dev/null
        ip netns del "$tag-m$i" 2>/dev/null
        ip netns del "$tag-g$i" 2>/dev/null
    done
    ip netns del "$tag-sky" 2>/dev/null
    clean_up
}
trap clean_net EXIT

mkfifo hold
exec 3<>hold # the lines last as long as this is open
ip netns add "$tag-sky" || { echo "skipped: cannot make network namespaces"; exit 77; }
ip -n "$tag-sky" link add roof type bridge
ip -n "$tag-sky" link set roof up
for i in 0 1 2; do
    ip netns add "$tag-m$i"
    ip netns add "$tag-g$i"
    ip -n "$tag-m$i" link set lo up
    ip -n "$tag-g$i" link add up0 type veth peer name "down$i" netns "$tag-sky"
    ip -n "$tag-sky" link set "down$i" master roof
    ip -n "$tag-sky" link set "down$i" up
    ip -n "$tag-g$i" addr add "10.99.0.$((i + 1))/24" dev up0
    ip -n "$tag-g$i" link set up0 up
    ip netns exec "$tag-g$i" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
    "$WAN" 80e6 30 "$tag-m$i" "10.10$i.0.1" "$tag-g$i" "10.10$i.0.2" <hold >"wan-$i.out" 3>&- &
    echo $! >"wan-$i.pid"
done
for i in 0 1 2; do
    for _ in $(seq 100); do
        grep -q up "wan-$i.out" && break
        sleep 0.05
    done
    grep -q up "wan-$i.out" || { echo "skipped: no wide-area link"; exit 77; }
    ip -n "$tag-m$i" route add default via "10.10$i.0.2"
    for k in 0 1 2; do
        [ $i = $k ] || ip -n "$tag-g$i" route add "10.10$k.0.0/16" via "10.99.0.$((k + 1))"
    done
done

make_corpus
make_run run.yaml 2 40
runs train run.yaml --out straight --set stages.count=2

# on I ARGS...: strait on machine I, as a user would type it there.
on() {
    machine=$1
    shift
    ip netns exec "$tag-m$machine" env STRAIT_CLI="$SCRATCH" "$STRAIT" "$@"
}

# begin_swarm FOLDER
begin_swarm() {
    on 0 host run.yaml --out "$1" --set stages.count=2 --listen 10.100.0.1:7070 --keys keys-0 \
        >"$1.invite" 2>>"$HOST_LOG" </dev/null &
    HOST=$!
    for _ in $(seq 100); do
        [ -s "$1.invite" ] && break
        sleep 0.05
    done
    for i in 1 2; do
        on $i join "$(cat "$1.invite")" --keys "keys-$i" --name "m$i" --threads 1 \
            >/dev/null 2>>"join-$i.err" </dev/null &
    done
}

begin_swarm plain
host_ends 0 "three machines"
same_metrics straight plain
same_weights straight plain
none_left

# cut I SECONDS: the line of machine I carries nothing for a while, and nobody is told.
cut_line() {
    kill -STOP "$(cat "wan-$1.pid")"
    sleep "$2"
    kill -CONT "$(cat "wan-$1.pid")"
}

begin_swarm cut
wait_steps cut 5
cut_line 1 2
wait_steps cut 12
cut_line 2 12
wait_steps cut 20
cut_line 0 9
host_ends 0 "lines that are cut"
same_metrics straight cut
same_weights straight cut
says cut/events.log 'is lost' 'is back|joined'
none_left
grep -c 'all stages stand' cut/events.log | sed 's/^/epochs: /'
