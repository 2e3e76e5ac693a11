#!/bin/sh
# large.sh - a snapshot larger than the send queue of a link: after coordinator and worker were killed,
# the next worker must receive the stage from the checkpoint in pieces.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/lib.sh"

make_corpus
make_run run.yaml 1 16
# 26 million parameters and two moments of each: 307 MB.
sets="--set model.vocab=200000 --set model.width=64 --set train.batch_tokens=16 --set train.save_every=8
    --set train.valid_every=0 --set train.keep_checkpoints=1"
runs train run.yaml --out straight $sets

host_begin swarm run.yaml $sets
join_begin swarm 1
has_saved() {
    [ -d swarm/checkpoints/00000008 ] || ! is_running
}
await "a checkpoint" has_saved
[ -d swarm/checkpoints/00000008 ] || fail "no checkpoint was written"
kill_join 1
host_kill

host_begin swarm run.yaml $sets
join_begin swarm 2
host_ends 0 "with a worker that has no snapshot"
[ "$(grep -c 'lost the connection to the coordinator' join-2.err)" -eq 0 ] || fail "the worker was disconnected: $(tail -n 3 join-2.err)"
same_metrics straight swarm
same_weights straight swarm
