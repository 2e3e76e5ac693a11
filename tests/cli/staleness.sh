#!/bin/sh
# staleness.sh - updates that are one step late: the same bits on one stage and on several, whatever the schedule and
# the network, and after every interruption.
. "$(dirname "$0")/lib.sh"

make_corpus
make_run run.yaml 4 14
late="--set train.staleness=1 --set train.optimizer=muon"
slow="--set link.emulate.delay=3ms --set link.emulate.jitter=6ms"

runs train run.yaml --out one $late
for schedule in fill-drain 1f1b 1f1b-window 1f1b-split; do
    runs train run.yaml --out "cut-$schedule" $late --set stages.count=4 --set stages.schedule=$schedule $slow
    same_metrics one "cut-$schedule"
    same_weights one "cut-$schedule"
done
runs train run.yaml --out threads $late --set stages.count=2 --set link.transport=inproc
same_metrics one threads
same_weights one threads
grep -q '"staleness":1' one/metrics.jsonl || fail "the metrics do not say that updates are late"
runs train run.yaml --out dry --dry-run $late
says "$OUT" "^updates +one step late"
# Checkpoints and validations empty the pipeline; with none between, all steps overlap.
runs train run.yaml --out on $late --set stages.count=3 $slow --set train.valid_every=0 --set train.save_every=0
same_weights one on

# The first two steps read the first weights, the third does not.
runs train run.yaml --out still --set train.learning_rate=1e-12 --set train.steps=4 --set train.warmup=0
runs train run.yaml --out moves --set train.staleness=1 --set train.steps=4 --set train.warmup=0
losses_of() { sed -n 's/.*"loss":\([^,]*\),"learning.*/\1/p' "$1/metrics.jsonl" | head -n "$2"; }
[ "$(losses_of still 2)" = "$(losses_of moves 2)" ] || fail "the second step has an update"
[ "$(losses_of still 3)" != "$(losses_of moves 3)" ] || fail "the third step has no update"
runs train run.yaml --out plain --set train.extrapolation=0 --set train.staleness=1 --set train.steps=4 \
    --set train.warmup=0
[ "$(losses_of plain 3)" != "$(losses_of moves 3)" ] || fail "train.extrapolation changes nothing"

# A codec with parameters, and values that are lost on the way: even and odd steps have their own.
code="$late --set stages.count=4 --set link.codec.name=strait --set link.codec.variant=context"
runs train run.yaml --out code-drain $code --set stages.schedule=fill-drain
runs train run.yaml --out code-split $code --set stages.schedule=1f1b-split $slow
same_metrics code-drain code-split
same_weights code-drain code-split

# Only the first stages are late: the same bits under every schedule, neither those of late nor of prompt updates.
some="$late --set stages.count=4 --set train.clip=0"
runs train run.yaml --out all $some
runs train run.yaml --out none $some --set train.staleness=0
runs train run.yaml --out some-drain $some --set train.late_stages=2 --set stages.schedule=fill-drain
runs train run.yaml --out some-split $some --set train.late_stages=2 --set stages.schedule=1f1b-split $slow
same_metrics some-drain some-split
same_weights some-drain some-split
for other in all none; do
    [ "$(losses_of some-drain 14)" != "$(losses_of $other 14)" ] || fail "train.late_stages: the losses of $other"
done
[ "$(losses_of some-drain 1)" = "$(losses_of none 1)" ] || fail "the first step has another loss"
begin train run.yaml --out some-ended --resume $some --set train.late_stages=2 $slow
wait_lines some-ended 5
kill -KILL "$STARTED" 2>/dev/null
reap
wait_all_exited
runs train run.yaml --out some-ended --resume $some --set train.late_stages=2 --set link.transport=inproc
same_metrics some-drain some-ended
same_weights some-drain some-ended
refuses 2 "train.late_stages 2: the other stages" train run.yaml --out no $late --set stages.count=4 --set train.clip=1 \
    --set train.late_stages=2

# Stopped and killed in the middle, then continued, also on another number of stages.
for signal in TERM KILL; do
    for lines in 3 7; do
        begin train run.yaml --out "ended-$signal" --resume $late --set stages.count=4 $slow
        wait_lines "ended-$signal" $lines
        kill "-$signal" "$STARTED" 2>/dev/null
        reap
        wait_all_exited
    done
    runs train run.yaml --out "ended-$signal" --resume $late --set stages.count=2 --set 'stages.split=[1,3]'
    same_metrics one "ended-$signal"
    same_weights one "ended-$signal"
done

# On and off between two sessions: without saved versions a run goes on from its weights.
runs train run.yaml --out changed --set train.optimizer=muon --set train.steps=6
runs train run.yaml --out changed --resume $late
runs train run.yaml --out changed --resume --set train.optimizer=muon --set train.steps=18

# What it cannot be combined with.
many="--set train.staleness=1 --set stages.count=2"
refuses 2 "train.staleness 1: replicas" train run.yaml --out no $many --set stages.replicas=2
refuses 2 "train.staleness 1: error feedback" train run.yaml --out no $many --set link.codec.name=int8 \
    --set link.codec.variant= --set link.codec.feedback=true
refuses 2 "train.staleness 1: codec subspace" train run.yaml --out no $many --set link.codec.name=subspace \
    --set link.codec.variant=full
refuses 2 "train.staleness 1: adapters" train run.yaml --out no $many --set train.lora.rank=2 --set train.init_from=one
refuses 2 "train.staleness 1: the workers of a swarm" host run.yaml --out no $many
refuses 2 "train.staleness" train run.yaml --out no --set train.staleness=2

# What the plan expects of it: two steps share one way there and back.
step_of() { sed -n 's/^step *\([0-9.]*\) s.*/\1/p' "$OUT"; }
runs plan run.yaml --gflops 1000 --set stages.count=4 --set link.emulate.delay=100ms --set link.emulate.rate=50mbit \
    --set link.codec.name=none
drained=$(step_of)
runs plan run.yaml --gflops 1000 --set stages.count=4 --set link.emulate.delay=100ms --set train.staleness=1 \
    --set link.emulate.rate=50mbit --set link.codec.name=none
awk '/^[0-9]+-[0-9]+ / && $NF + 0 > 100 { exit 1 }' "$OUT" || fail "a wire is busy for longer than a step takes"
awk -v a="$drained" -v b="$(step_of)" 'BEGIN { exit !(b > 0.45 * a && b < 0.6 * a) }' ||
    fail "a step takes $(step_of) s with late updates, $drained s without"
wait_all_exited
