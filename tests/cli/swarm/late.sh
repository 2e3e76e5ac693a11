#!/bin/sh
# late.sh - faster workers that join late take stages over between two steps, and the run computes the
# same bits: with exact boundaries, and with a codec that has state (error feedback).
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/lib.sh"
SLOW=$(dirname "$HELPER")/cli_hostile

make_corpus
make_run run.yaml 3 60

# slow_begin FOLDER N MS: starts a worker that takes MS longer per microbatch and reports a low speed.
slow_begin() {
    env STRAIT_CLI="$SCRATCH" "$SLOW" slow "$(cat "$1.invite")" "keys-slow-$2" "$3" >/dev/null \
        2>&1 </dev/null &
}

# stages_move NAME SETS...: two slow workers and a fast one start, two fast ones join. Both take over a
# stage, one after the other, because the slow ones are neighbours.
stages_move() {
    name=$1
    shift
    runs train run.yaml --out straight-$name --set stages.count=3 "$@"
    host_begin $name run.yaml --set stages.count=3 --rebalance 0.2 --set link.emulate.delay=80ms "$@"
    for i in 1 2; do
        slow_begin $name $i 20
        wait_joined $name $i
    done
    join_begin $name 1
    wait_for_text $name/events.log 'generation 1: all stages ready' # otherwise the slow ones would get no stage
    for i in 2 3; do join_begin $name $i; done
    host_ends 0 $name
    same_metrics straight-$name $name
    same_weights straight-$name $name
    says $name/events.log 'times as fast on spares' \
        'hostile .*stage [012]: a faster spare is available; moving the stage to' \
        'generation [3-9]: all stages ready at step [1-9]'
    [ "$(grep -c 'a faster spare is available' $name/events.log)" -ge 2 ] || fail "$name: fewer than two stages have moved"
    wait_all_exited
}

stages_move exact
stages_move lossy --set link.codec.name=topk --set link.codec.variant= --set link.codec.keep=8 \
    --set link.codec.feedback=true

# --rebalance 0 disables it.
host_begin never run.yaml --set stages.count=3 --rebalance 0
slow_begin never 1 4
wait_joined never 1
for i in 1 2 3; do join_begin never $i; done
host_ends 0 never
same_metrics straight-exact never
! grep -q 'faster spare' never/events.log || fail "a stage has moved although --rebalance is 0"
