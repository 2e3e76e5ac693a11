#!/bin/sh
# large.sh - a stage whose image is larger than all that may wait for a link: a coordinator that was
# killed with its only worker gives it to the next one from the checkpoint, piece by piece.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/swarm_lib.sh"

make_corpus
make_run run.yaml 1 16
# 26 million parameters and two moments of each: 307 MB.
sets="--set model.vocab=200000 --set model.width=64 --set train.batch_tokens=16 --set train.save_every=8
    --set train.valid_every=0 --set train.keep_checkpoints=1"
runs train run.yaml --out straight $sets

host_begin swarm run.yaml $sets
join_begin swarm 1
for _ in $(seq 2400); do
    [ -d swarm/checkpoints/00000008 ] && break
    is_running || break
    sleep 0.05
done
[ -d swarm/checkpoints/00000008 ] || fail "no checkpoint was written"
kill_join 1
host_kill

host_begin swarm run.yaml $sets
join_begin swarm 2
host_ends 0 "with a worker that has nothing"
[ "$(grep -c 'lost the coordinator' join-2.err)" -eq 0 ] || fail "the worker was sent away: $(tail -n 3 join-2.err)"
same_metrics straight swarm
same_weights straight swarm
