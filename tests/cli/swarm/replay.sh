#!/bin/sh
# replay.sh - a worker of four is killed with signal 9, at each point of a step and in each place: the spare
# that takes its stage restores a snapshot and computes the steps since alone, while the other stages keep
# what they have. Losses and weights are those of an undisturbed run.
#
#   CASES="none:forward:1 strait:applied:2"   codecs, points and stages (default: the first stage, the last, a
#                                             middle one, and both sides of an update)
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/lib.sh"
LIAR=$(dirname "$HELPER")/../liar/cli_liar
CASES=${CASES:-none:forward:1 strait:backward:0 subspace:begin:3 subspace:update:2 lowrank:applied:1}
STEP=11 # in which the worker is killed

make_corpus
make_run run.yaml 4 18
# A slow link makes copies of snapshots rare, so that there are several steps to compute again.
sets="--set stages.count=4 --set train.save_every=100 --set link.emulate.rate=3mbit --set link.emulate.delay=5ms"

# codec_sets CODEC: prints the options of a codec.
codec_sets() {
    case $1 in
    none) ;;
    subspace) echo "--set link.codec.name=subspace --set link.codec.variant= --set link.codec.keep=8
        --set link.codec.grassmann_every=5 --set link.codec.grassmann_rate=0.1" ;;
    *) echo "--set link.codec.name=$1 --set link.codec.variant= --set link.codec.keep=8" ;;
    esac
}

# matches FOLDER STRAIGHT: checks that the run succeeds with the losses and weights of STRAIGHT.
matches() {
    host_ends 0 "$1"
    same_metrics "$2" "$1"
    same_weights "$2" "$1"
}

# check_replayed FOLDER STAGE: one stage computed again what was needed, the others nothing.
check_replayed() {
    says "$1/events.log" "all stages ready at step [0-9]+ \(replay: stage $2 restored step"
    ! grep -q 'rollback:' "$1/events.log" || fail "$1: all stages were rolled back: $(grep rollback: "$1/events.log")"
    line=$(sed -n 's/.*all stages ready at step \([0-9]*\) (replay: stage .* restored step \([0-9]*\),.*; \([0-9]*\) stage-steps.*, \([0-9]*\) by a rollback.*/\1 \2 \3 \4/p' "$1/events.log")
    echo "$1: continued at step, restored, stage-steps, by a rollback: $line"
    echo "$line" | awk '$3 != $1 - $2 || $4 < 4 * $3 { exit 1 }' ||
        fail "$1: more than the lost stage was computed again: $line"
}

# straight CODEC: sets $straight to an undisturbed run with that codec.
straight() {
    straight=straight-$1
    [ -d $straight ] ||
        runs train run.yaml --out $straight --set stages.count=4 --set train.save_every=100 $(codec_sets $1)
}

for case in $CASES; do
    codec=${case%%:*}
    fault=${case#*:}
    name=$(echo "$case" | tr : -)
    straight $codec
    host_begin $name run.yaml $sets $(codec_sets $codec)
    for i in 1 2 3 4; do join_begin $name $i --fault "$fault:$STEP"; done
    wait_joined $name 4
    join_begin $name 5
    matches $name $straight
    check_replayed $name "${fault#*:}"
    for i in 1 2 3 4 5; do kill_join $i; done
done

# A neighbour sends other crossings again than the first time. The spare computes other values than the lost
# worker reported, so all stages are rolled back, and the run ends with the right bits. Stages are given in
# the order of joining: the liar gets the one after the lost one.
host_begin altered run.yaml $sets --rebalance 0
for i in 1 2; do
    join_begin altered $i --fault applied:1:$STEP
    wait_for_text altered/events.log "w$i .*joined"
done
env STRAIT_CLI="$SCRATCH" "$LIAR" --flip crossing --again 1 --times 4 join "$(cat altered.invite)" --keys keys-liar \
    --name liar --listen 127.0.0.1:0 --threads 1 >liar.out 2>&1 </dev/null &
wait_for_text altered/events.log 'liar .*joined'
for i in 4 5; do
    join_begin altered $i
    wait_for_text altered/events.log "w$i .*joined"
done
straight none
matches altered $straight
says liar.out 'liar: step [0-9]+: --flip crossing'
says altered/events.log 'replay: stage 1 restored step' \
    'stage 1: computed other values than the first time from the crossings that its neighbours sent again; rolling all' \
    'all stages ready at step [0-9]+ \(rollback: [0-9]+ stage-steps are recomputed\)'
! grep -q 'banned' altered/events.log || fail "a worker was banned: who altered the crossings is not known"
