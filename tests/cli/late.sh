#!/bin/sh
# late.sh - machines that join late and are faster take stages over, between two steps, and the run
# ends with the same bits: with exact boundaries, and with a codec that remembers.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/swarm_lib.sh"
SLOW=$(dirname "$HELPER")/cli_hostile

make_corpus
make_run run.yaml 3 60

# slow_begin FOLDER N MS: a machine that is slow, by MS a microbatch, and says so.
slow_begin() {
    env STRAIT_CLI="$SCRATCH" "$SLOW" slow "$(cat "$1.invite")" "keys-slow-$2" "$3" >/dev/null \
        2>&1 </dev/null &
}

# moves NAME SETS...: two slow machines and a fast one begin, two fast ones come; both get a stage,
# one after the other, since the slow ones are neighbours.
moves() {
    name=$1
    shift
    runs train run.yaml --out straight-$name --set stages.count=3 "$@"
    host_begin $name run.yaml --set stages.count=3 --rebalance 0.2 --set link.emulate.delay=80ms "$@"
    for i in 1 2; do
        slow_begin $name $i 20
        wait_joined $name $i
    done
    join_begin $name 1
    wait_for_text $name/events.log 'generation 1: all stages ready' # else the slow ones would get no stage
    for i in 2 3; do join_begin $name $i; done
    host_ends 0 $name
    same_metrics straight-$name $name
    same_weights straight-$name $name
    says $name/events.log 'times as fast on spares' \
        'hostile .*stage [012]: a faster spare is available; moving the stage to' \
        'generation [3-9]: all stages ready at step [1-9]'
    [ "$(grep -c 'a faster spare is available' $name/events.log)" -ge 2 ] || fail "$name: only one has moved"
    wait_all_exited
}

moves exact
moves lossy --set link.codec.name=topk --set link.codec.variant= --set link.codec.keep=8 \
    --set link.codec.feedback=true

# It can be forbidden.
host_begin never run.yaml --set stages.count=3 --rebalance 0
slow_begin never 1 4
wait_joined never 1
for i in 1 2 3; do join_begin never $i; done
host_ends 0 never
same_metrics straight-exact never
! grep -q 'faster spare' never/events.log || fail "a stage has moved"
