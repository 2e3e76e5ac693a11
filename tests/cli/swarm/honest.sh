#!/bin/sh
# honest.sh - nobody lies, but the gradients jump, as they do in small runs early in training: no step may be
# recomputed for that. A time that a busy machine measured may be bounded. Checks runs that differ in seed, size,
# codec, optimizer, warmup and tokens per batch; with few tokens, most rows of a token table get no gradient.
#
#   RUNS=8    how many of the cases below, of 10
#   SEEDS=1   runs of each, with other seeds
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/lib.sh"
RUNS=${RUNS:-8}
SEEDS=${SEEDS:-1}

# Each line: the seed, then the settings of a case. Batches of few tokens make the widest jumps; in a
# yardstick most parameters get no gradient in the first step.
cat >cases <<END
1
81 train.batch_tokens=16
26 link.codec.name=strait link.codec.variant=free
35 model.family=yardstick
4 model.anchors=true model.value_tables=true train.batch_tokens=16 train.warmup=10
5 link.codec.name=strait link.codec.variant=context model.table_rows=64 train.optimizer=muon
6 link.codec.name=int4 link.codec.variant= train.batch_tokens=32
7 model.width=64 train.batch_tokens=32 train.learning_rate=0.02
8 model.layers=3 link.codec.name=subspace link.codec.variant=
9 model.layers=12 link.codec.name=topk link.codec.variant= train.warmup=0
END

# honest FOLDER SEED SETTINGS...: runs a swarm; what it did is in events.log.
honest() {
    folder=$1
    sets="--set train.seed=$2"
    shift 2
    for setting in "$@"; do sets="$sets --set $setting"; done
    host_begin "$folder" run.yaml --set stages.count=3 $sets --rebalance 0
    for i in 1 2 3; do join_begin "$folder" "$folder-$i"; done
    host_ends 0 "$folder:$sets"
    ! grep -qE 'implausible|far from before|impossible|violation|banned' "$folder/events.log" ||
        fail "an honest worker is suspected,$sets: $(grep -m 1 -E 'far from|impossible|violation|banned' "$folder/events.log")"
}

make_corpus
make_run run.yaml 6 24
n=0
for again in $(seq "$SEEDS"); do
    head -n "$RUNS" cases >now
    while read -r seed settings; do
        n=$((n + 1))
        honest run-$n $((seed + 100 * (again - 1))) $settings
    done <now
done
echo "$n honest runs: no step was recomputed"
