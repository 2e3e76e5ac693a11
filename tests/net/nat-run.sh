#!/bin/sh
# nat-run.sh STRAIT HELPER - two workers at home, each behind a router that translates addresses and lets
# nobody in (nftables masquerade), own both stages: they reach the host and each other's public address,
# but neither can be dialled. Beside them are spares with public addresses; later there is none, but a
# relay. The run must make a step within seconds each time.
. "$(dirname "$0")/../cli/lib.sh"
. "$(dirname "$0")/../cli/swarm/lib.sh"
LIMIT=${LIMIT:-300} # seconds to the first step; use 30 on an idle machine
. "$(dirname "$0")/nat_lib.sh"

# advances FOLDER CASE: waits for the first step and the end of the run.
advances() {
    fault=$2
    wait_until "$2: a step" has_reached_step "$1" 1 || fail "$2: the run has ended"
    took=$(($(now_ms) - began))
    echo "$2: $took ms to the first step"
    [ $took -lt $((LIMIT * 1000)) ] || fail "$2: a step after more than $LIMIT s"
    host_ends 0 "$2"
    same_metrics straight "$1"
    same_weights straight "$1"
}

plug host "$PUBLIC.1"
plug public "$PUBLIC.2"
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
ip netns exec "$tag-host" env STRAIT_CLI="$SCRATCH" "$STRAIT" relay --listen "$PUBLIC.1:7071" >relay.out \
    2>relay.err </dev/null &
relay=$!
wait_for_text relay.out 'relay at'
rm -rf keys-1 keys-2
hosts relayed --relay "$PUBLIC.1:7071"
for i in 1 2; do worker relayed home$i $i; done
wait_joined relayed 2
began=$(now_ms)
advances relayed "two home networks and a relay"
kill -INT $relay
wait_all_exited
