#!/bin/sh
# swarm_disk.sh - the coordinator's disk is full for a while: the run pauses, then continues and computes
# the same bits. Needs root to mount a small disk; skips otherwise.
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../lib.sh"
[ "$(id -u)" = 0 ] || { echo "skipped: needs root"; exit 77; }
mkdir small
mount -t tmpfs -o size=4m tmpfs small 2>/dev/null || { echo "skipped: cannot mount"; exit 77; }
trap 'for pid in $(our_processes); do kill -9 $pid; done; umount -l "$SCRATCH/small"; clean_up' EXIT

make_corpus
make_run run.yaml 2 60
sets="--set stages.count=2 --set link.emulate.delay=25ms --set train.keep_checkpoints=1"
runs train run.yaml --out straight $sets
host_begin small/run run.yaml $sets
for i in 1 2; do join_begin small/run $i; done
wait_steps small/run 10
dd if=/dev/zero of=small/filler bs=4k 2>/dev/null
wait_for_text "$HOST_LOG" 'paused: .*No space'
is_running || fail "a full disk ended the run"
lines=$(wc -l <small/run/metrics.jsonl)
sleep 2
is_running || fail "a full disk ended the run"
[ "$(wc -l <small/run/metrics.jsonl)" -eq "$lines" ] || fail "steps were committed while the disk was full"
rm small/filler
host_ends 0 "a disk that was full"
same_metrics straight small/run
same_weights straight small/run
