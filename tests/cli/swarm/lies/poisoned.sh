#!/bin/sh
# poisoned.sh - a neighbour gives a stage back that is not what its owner had: all zeros, or with one bit
# flipped. The run must end with the losses and weights of an undisturbed one, and events.log must name the
# neighbour.
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../lib.sh"
LIAR=$(dirname "$HELPER")/../liar/cli_liar

make_corpus
make_run run.yaml 3 24
sets="--set stages.count=3 --set train.save_every=1000"
runs train run.yaml --out straight $sets

# poison FOLDER RULE: stages are given in the order of joining, so each owner joins by itself: the liar gets
# the last stage and keeps the copies of the middle one, whose owner dies at step 12; a spare takes over.
poison() {
    host_begin "$1" run.yaml $sets --rebalance 0
    for i in 1 2; do
        join_begin "$1" "$1-$i" --fault applied:1:12
        wait_for_text "$1/events.log" "w$1-$i .*joined"
    done
    env STRAIT_CLI="$SCRATCH" "$LIAR" --lie join.report.flops=1e6 "$2" snapshot join "$(cat "$1.invite")" \
        --keys "keys-$1" --name liar --listen 127.0.0.1:0 --threads 1 >"$1.out" 2>&1 </dev/null &
    wait_for_text "$1/events.log" 'liar .*joined'
    for i in 3 4 5; do join_begin "$1" "$1-$i"; done
    host_ends 0 "$1"
    same_metrics straight "$1"
    same_weights straight "$1"
    ! grep -q 'worker w.*banned' "$1/events.log" || fail "$1: an honest worker was banned"
}

# On a busy machine the owner may die before its copy is complete: then nobody is asked for it.
for rule in zero flip; do
    for again in 1 2 3; do
        poison $rule-$again --$rule
        grep -q 'gave a neighbour' $rule-$again/events.log && break
    done
    says $rule-$again/events.log "worker liar .*: gave a neighbour a copy that is not what the stage's owner took"
done
