#!/bin/sh
# powercut.sh - the host loses power again and again, at syncs of its journal, metrics, checkpoints, key and
# folders. What was not synced is lost, or kept in part (powercut/shim.c, powercut/restore.c). Each time the
# run continues with the same invite; it ends with the bits of an undisturbed run and one line per step.
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../lib.sh"
SHIM=$3
RESTORE=$4
SEEDS=${SEEDS:-1}
CUTS=${CUTS:-16}

make_corpus
make_run run.yaml 2 150
sets="--set stages.count=2 --set train.save_every=7"
runs train run.yaml --out straight $sets
# start_host N: starts the host on the disk; its power is cut at the N-th sync. 0: never.
start_host() {
    LD_PRELOAD=$SHIM POWERCUT_DISK=$SCRATCH/disk POWERCUT_SHADOW=$SCRATCH/shadow POWERCUT_AT=$1
    export LD_PRELOAD POWERCUT_DISK POWERCUT_SHADOW POWERCUT_AT
    folder=disk/run
    [ -s run.port ] || { choose_port && echo "$port" >run.port; }
    env STRAIT_CLI="$SCRATCH" "$STRAIT" host run.yaml --out disk/run $sets \
        --listen "127.0.0.1:$(cat run.port)" --keys disk/keys >run.invite 2>>"$HOST_LOG" </dev/null &
    HOST=$!
    unset LD_PRELOAD POWERCUT_DISK POWERCUT_SHADOW POWERCUT_AT
}

# wait_for_cut: waits until the host has ended, and starts the workers at its first invite.
wait_for_cut() {
    while is_running; do
        if [ ! -s first.invite ] && grep -qs . run.invite; then
            cp run.invite first.invite
            for i in 1 2; do join_begin first $i; done
        fi
        sleep 0.02
    done
    wait "$HOST" 2>/dev/null
    code=$?
    [ ! -s run.invite ] || [ ! -s first.invite ] || cmp -s run.invite first.invite ||
        fail "seed $seed, cut $cut: the invite is another one after the power cut"
}

# survives_cuts SEED: a run with that many power cuts, at syncs that the seed chooses.
survives_cuts() {
    rm -rf disk shadow keys-? run.port run.invite first.invite
    mkdir disk shadow
    "$RESTORE" disk shadow 0 || fail "the empty disk cannot be described"
    draw_from "$1"
    cut=0
    while [ $cut -lt "$CUTS" ]; do
        cut=$((cut + 1))
        draw 60
        [ $cut -gt 6 ] || drawn=$((2 * cut)) # first the creation of the key, the folder and the journal
        start_host $((drawn + 1))
        wait_for_cut
        [ "$code" -ne 0 ] || fail "seed $1: the run was over after $cut cuts"
        [ "$code" -eq 137 ] || { tail -n 5 "$HOST_LOG" >&2; fail "seed $1, cut $cut: the host ended with $code"; }
        draw 3
        kept=$((drawn * ($1 * 1000 + cut))) # a third of the cuts keep nothing that was not synced
        "$RESTORE" disk shadow $kept || fail "seed $1, cut $cut: the disk cannot be restored"
        echo "seed $1, cut $cut: $kept, $(wc -l 2>/dev/null <disk/run/metrics.jsonl || echo no) lines"
    done
    start_host 0
    wait_for_cut
    [ "$code" -eq 0 ] || { tail -n 5 "$HOST_LOG" >&2; fail "seed $1: the run ended with $code after the last cut"; }
    same_metrics straight disk/run
    same_weights straight disk/run
    wait_all_exited
}
for seed in $SEEDS; do survives_cuts "$seed"; done
