#!/bin/sh
# averages.sh - pipelines of workers that train on their own and average their weights (train.outer): the bits of
# strait train with as many replicas, with any codec, also where steps overlap with averages; a killed worker takes its
# pipeline out, the run goes on without going back, the record says who took part, and what comes back continues from
# the average. SEEDS: more runs, each
# with FAULTS kills at points that are drawn.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/lib.sh"
SPARES=0

make_corpus
make_run run.yaml 2 12
pair="--set stages.count=2 --set stages.replicas=2 --set train.batch_tokens=256"

# averaged FOLDER: prints step and participants of each average.
averaged() { sed -n 's/^{"step":\([0-9]*\).*"averaged":\(\[[0-9,]*\]\).*/\1 \2/p' "$1/metrics.jsonl"; }

# The same bits as in one process.
set_all="$pair --set train.outer.sync_every=4 --set train.outer.fragments=2 --set train.outer.bits=4
    --set train.outer.overlap=1 --set train.outer.warmup=3
    --set link.codec.name=lowrank --set link.codec.variant="
runs train run.yaml --out straight $set_all --set link.transport=inproc
host_begin all run.yaml $set_all
for i in 1 2 3 4; do join_begin all $i; done
host_ends 0 all
same_metrics straight all
for run in straight all; do weights_of $run | grep -vE '^replica\.1\.|^replica\.0\.sent\.|in_flight' >$run.weights; done
cmp -s straight.weights all.weights || fail "weights differ: $(diff straight.weights all.weights | head -n 6)"
[ "$(averaged straight)" = "$(averaged all)" ] || fail "averages: $(averaged all)"
runs inspect all
says "$OUT" 'averaged: 1 to 12 \[0,1\]$'

# So it is where attention is averaged at steps of its own: several averages may follow one step.
set_often="$pair --set train.outer.sync_every=4 --set train.outer.bits=4 --set train.outer.attention_every=2"
runs train run.yaml --out straight-often $set_often --set link.transport=inproc
host_begin often run.yaml $set_often
for i in 1 2 3 4; do join_begin often $i; done
host_ends 0 often
same_metrics straight-often often
for run in straight-often often; do weights_of $run | grep -vE '^replica\.1\.' >$run.weights; done
cmp -s straight-often.weights often.weights ||
    fail "weights differ: $(diff straight-often.weights often.weights | head -n 6)"
[ "$(averaged often | cut -d ' ' -f 1 | tr '\n' ' ')" = "2 4 6 8 10 12 " ] || fail "averages: $(averaged often)"

# A run without averages is continued with them, from its checkpoint.
runs train run.yaml --out plain $pair --set stages.replicas=1 --set train.steps=4
host_begin plain run.yaml $pair --set train.outer.sync_every=4 --resume
for i in 1 2 3 4; do join_begin plain $i; done
host_ends 0 plain
[ "$(averaged plain | cut -d ' ' -f 1 | tr '\n' ' ')" = "8 12 " ] || fail "averages: $(averaged plain)"

# never_back FOLDER: checks that no stage was restored to an earlier step.
never_back() {
    grep 'all stages ready' "$1/events.log" | grep -vE 'ready at step 0$|stage none restored .*; 0 stage-steps' >back
    [ ! -s back ] || fail "$1 went back: $(cat back) $(tail -n 30 "$1/events.log")"
}

# compute FOLDER N: N pipelines compute.
compute() {
    [ "$(jq '[.workers[] | select(.stage == 0)] | length' "$1/swarm.json" 2>/dev/null || echo 0)" -ge "$2" ]
}

# worker_of FOLDER FILTER: prints the number of a worker that the filter of jq selects.
worker_of() { jq -r "[.workers[] | select($2)][0].name" "$1/swarm.json" | tr -d w; }

# A worker of another pipeline is killed, then one of the first: the others go on with the state that they have.
host_begin kills run.yaml --set stages.count=2 --set stages.replicas=3 --set train.batch_tokens=256 \
    --set train.outer.sync_every=4 --set train.outer.overlap=3 --set train.outer.bits=4 \
    --set link.emulate.delay=10ms --set train.steps=120
for i in 1 2 3 4 5 6; do join_begin kills $i; done
wait_until 'three pipelines compute' compute kills 3
wait_steps kills 8
victim=$(worker_of kills '.replica == 1')
kill_join "$victim"
wait_for_text kills/events.log 'averaged pipelines 0 \(w[0-9], w[0-9]\), [12] \(w[0-9], w[0-9]\)$'
wait_until 'two pipelines compute' compute kills 2
victim2=$(worker_of kills '.stage == 1 and .replica == 0')
kill_join "$victim2"
wait_for_text kills/events.log 'the first pipeline lost a worker: another takes its place'
join_begin kills "$victim" # what is left of two pipelines and those that return complete others
join_begin kills "$victim2"
averaged_again() {
    awk '/another takes its place/ { is_new = 1 } is_new && /averaged pipelines [0-9] \(w[0-9], w[0-9]\), / { ok = 1 }
        END { exit !ok }' kills/events.log
}
wait_until 'another pipeline' averaged_again || fail "no other pipeline: $(tail -n 20 kills/events.log)"
host_ends 0 kills
never_back kills
averaged kills >seen
runs inspect kills
says "$OUT" 'averaged: 7 (to [0-9]+ )?\[0,1,2\], [0-9]+ (to [0-9]+ )?\[0,[12]\]'
grep -qx '7 \[0,1,2\]' seen && [ "$(wc -l <seen)" -eq 30 ] || fail "averages: $(cat seen)"
wait_all_exited

# compare_runs A B: both have the same metrics, averages and weights.
compare_runs() {
    same_metrics "$1" "$2"
    [ "$(averaged "$1")" = "$(averaged "$2")" ] || fail "averages of $1 and $2: $(averaged "$1") and $(averaged "$2")"
    for run in "$1" "$2"; do weights_of "$run" >"$run.weights"; done
    cmp -s "$1.weights" "$2.weights" || fail "$1 and $2: $(diff "$1.weights" "$2.weights" | head -n 6)"
}

# A pipeline is lost while an average is under way, at two points of the step: the others begin it again, from the
# weights that they had sent, and go on. Workers that come one by one form pipelines in that order.
one_of_three() { # one_of_three FOLDER FAULT: the fourth worker computes stage 1 of pipeline 1
    host_begin "$1" run.yaml $pair --set stages.replicas=3 --set train.outer.sync_every=4 --set train.outer.overlap=3 \
        --set train.outer.bits=4 --set train.steps=16
    for i in 1 2 3 4 5 6; do
        flags=
        [ $i -ne 4 ] || flags="--fault $2"
        join_begin "$1" $i $flags
        wait_joined "$1" $i
    done
    host_ends 0 "$1"
    never_back "$1"
    grep -q 'step 7: averaged pipelines 0 (w[0-9], w[0-9]), 2 (w[0-9], w[0-9])$' "$1/events.log" ||
        fail "$1: $(cat "$1/events.log")"
    wait_all_exited
}
one_of_three early begin:1:5
one_of_three late backward:1:5
compare_runs early late

# No other pipeline is there: the stages go back to a snapshot that was taken while an average was under way, or, when
# the coordinator is lost with all workers, to such a checkpoint, and the run ends as if nothing had happened.
alone="$pair --set stages.replicas=1 --set train.outer.sync_every=4 --set train.outer.overlap=4 --set train.steps=40
    --set train.save_every=3 --set link.emulate.delay=10ms --max-lost-work 0.01"
fault= # of the second worker, which has stage 1
begin_alone() { # begin_alone FOLDER RUN ARGS...
    host_begin "$@"
    for i in 1 2 3; do
        flags=
        [ $i -ne 2 ] || flags=$fault
        join_begin "$1" $i $flags
        wait_joined "$1" $i
    done
}
for name in calm lost saved; do
    [ $name != lost ] || fault="--fault backward:1:21"
    begin_alone $name run.yaml $alone
    fault=
    if [ $name = saved ]; then
        wait_until 'all stages compute' compute $name 1
        wait_steps $name 20
        host_kill
        for i in 1 2 3; do kill_join $i; done
        begin_alone saved run.yaml $alone
    fi
    host_ends 0 $name
    wait_all_exited
done
went_to_snapshot() {
    grep -qE 'generation 2: all stages ready at step ([5-9]|[1-7][0-9])' "$1/events.log" || fail "$(cat "$1/events.log")"
}
went_to_snapshot lost
compare_runs calm lost
compare_runs calm saved

# There are snapshots also where something is sent or applied after every step, and no checkpoint.
fault="--fault backward:1:21"
begin_alone dense run.yaml $alone --set train.outer.sync_every=2 --set train.outer.overlap=1 --set train.save_every=1000
host_ends 0 dense
wait_all_exited
went_to_snapshot dense

# All workers are lost with what they had: the steps that others compute again are averaged by all who have come since.
# Without the first worker the run waits, so that the second is lost in the same step.
host_begin again run.yaml $alone --set train.outer.sync_every=2 --set train.outer.overlap=0 --set train.save_every=1000 \
    --set train.steps=56
join_begin again 1 --fault begin:0:48
join_begin again 2 --fault begin:0:48
wait_for_text again/events.log 'worker w[12] .*connection lost'
for i in 1 2; do kill_join $i; done
for i in 3 4 5 6; do join_begin again $i; done
host_ends 0 again
awk -v last=48 '/\(rollback/ { is_again = 1 } is_again && /averaged pipelines [0-9] \(.*\), [0-9] \(/ {
    sub(/.*step /, ""); if ($0 + 0 < last) ok = 1 } END { exit !ok }' again/events.log ||
    fail "newcomers waited for new steps: $(cat again/events.log)"
wait_all_exited

# Kills a worker at a drawn point of a step, FAULTS times; it comes back. The run ends, and every average is recorded.
points="begin forward backward norm update applied average snapshot commit validate save restore"
pick() { # pick N WORDS...: sets $picked to word N
    shift "$1"
    picked=$2
}
come_back() { # come_back FOLDER: starts workers again that have killed themselves, until two pipelines compute
    for i in 1 2 3 4 5 6; do kill -0 "$(pid_of_join $i)" 2>/dev/null || join_begin "$1" $i; done
    compute "$1" 2
}
kill_run() {
    draw_from "$1"
    name=drawn-$1
    host_begin "$name" run.yaml $pair --set stages.replicas=3 --set train.outer.sync_every=3 --set train.outer.bits=4 \
        --set train.outer.fragments=2 --set train.outer.overlap=$(($1 % 2)) --set link.emulate.delay=5ms --set train.steps=$((150 * FAULTS))
    for i in 1 2 3 4 5 6; do join_begin "$name" "$i"; done
    for fault in $(seq "$FAULTS"); do
        wait_until 'pipelines compute' come_back "$name" || break
        draw 6
        victim=$((drawn + 1))
        kill_join $victim
        draw 12
        pick "$drawn" $points
        draw 2
        join_begin "$name" $victim --fault "$picked:$drawn:$(($(steps_in "$name") + 30))"
        sleep 1
    done
    host_ends 0 "$name"
    wanted=$(awk "BEGIN { for (i = 1; i <= 150 * $FAULTS; i++) n += i % 3 != 1 || i == 150 * $FAULTS; print n }")
    [ "$(averaged "$name" | wc -l)" -eq "$wanted" ] || fail "$name: $(averaged "$name" | wc -l) averages, not $wanted"
    for i in 1 2 3 4 5 6; do kill_join "$i"; done
    ! grep violation "$name/events.log" || fail "$name: an honest worker was blamed"
    echo "seed $1: $FAULTS kills, $(grep -c 'all stages ready' "$name/events.log") generations," \
        "$(averaged "$name" | cut -d ' ' -f 2 | sort | uniq -c | tr -s ' \n' ' ')"
}
for seed in ${SEEDS:-}; do kill_run "$seed"; done
