#!/bin/sh
# chaos.sh - injects faults drawn from a seed into a swarm run; losses and weights must be the same as
# without faults. A failure prints the seed, which repeats the same faults.
#
#   SEED=2       seed of the faults; SEEDS="1 2 3": one run after another
#   FAULTS=15    faults per run, not counting the kills that prepare others
#   LONGEST=5    longest time that a link is cut, in seconds
#   BACK=10      steps that may be recomputed twice on a busy machine, where copies arrive late; 0 elsewhere
#
# Three stages and a spare. Faults: kill -9 of each stage at each point of a step (join --fault), of the
# coordinator, and of both; a paused worker; links that are cut, silent, half open or slow (tap.c); a
# full disk (as root); a worker that joins late and one that leaves on request.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/lib.sh"
SEEDS=${SEEDS:-${SEED:-2}}
FAULTS=${FAULTS:-15}
LONGEST=${LONGEST:-5}
BACK=${BACK:-10}
SPARE=3 # stands for "no stage" where a stage number is expected
RUN=small/chaos
N_WORKERS=4
. "$(dirname "$0")/chaos_lib.sh"

# plan SEED: prints the faults of a run, one per line: kind, stage, milliseconds or point. Consecutive
# seeds cover different pairs of point and stage; every other kind occurs at least once per run if
# FAULTS is large enough.
plan() {
    awk -v seed="$1" -v faults="$FAULTS" -v longest="$LONGEST" '
    function draw(n) { state = (state * 16807) % 2147483647; return int(state / 64) % n }
    function shuffle(a, n,   i, k, t) { for (i = n; i > 1; i--) { k = draw(i) + 1; t = a[i]; a[i] = a[k]; a[k] = t } }
    function lasts(kind) {
        if (kind == "stop") return 1000 + draw(6000)
        if (kind == "slow") return 1000 + draw(3000)
        if (kind == "disk" || kind == "late") return 500 + draw(1500)
        if (kind ~ /^(cut|hold|half|back)$/) return int(1000 * longest ^ (draw(1001) / 1000))
        return draw(1500)
    }
    BEGIN {
        n_points = split("begin forward backward norm update applied snapshot copy commit validate save restore", point, " ")
        for (i = 0; i < 3 * n_points; i++) pair[i + 1] = (i % 3) " " point[int(i / 3) + 1]
        state = 1; shuffle(pair, 3 * n_points)
        n_kinds = split("host both stop cut hold half back slow disk late leave", kind, " ")
        state = seed * 7919 + 1; shuffle(kind, n_kinds)
        n_pairs = faults > 2 * n_kinds ? int(faults / 2) : faults > n_kinds ? faults - n_kinds : int(faults / 3)
        for (i = 0; i < faults; i++) {
            k = i < n_pairs ? "point" : i < n_pairs + n_kinds ? kind[i - n_pairs + 1] : kind[draw(n_kinds) + 1]
            line[i + 1] = k == "point" ? k " " pair[(seed * n_pairs + i) % (3 * n_points) + 1] : k " " draw(3) " " lasts(k)
        }
        shuffle(line, faults)
        for (i = 1; i <= faults; i++) print line[i]
    }'
}

# ---- state of the workers ----

# abort_test REASON: fails and prints the settings that repeat the failure.
abort_test() {
    tail -n 20 $RUN/events.log >&2
    for i in 1 2 3 4; do sed "s/^/w$i: /" "join-$i.err" | tail -n 4 >&2; done
    fail "$*, at fault $n ($fault); SEED=$seed FAULTS=$FAULTS LONGEST=$LONGEST repeats it"
}

all_assigned() {
    for s in 0 1 2 $SPARE; do owner_of $s || return 1; done
}

# wait_settled: waits until every worker has a stage or is the spare, and a step has been committed.
wait_settled() {
    wait_until "every worker has an assignment" all_assigned || return 1
    wait_until progress has_reached_step $RUN $(($(steps_in $RUN) + 1))
}

is_spare() {
    [ "$(stage_of "$1")" = $SPARE ]
}

is_serving() {
    [ "$(stage_of "$1")" != $SPARE ]
}

has_stage() {
    [ "$(stage_of "$1")" = "$2" ]
}

is_dead_or_moved() {
    is_dead "$1" || ! has_stage "$1" "$2"
}

# restart_unarmed I: restarts worker I without its fault. On a busy machine another worker may have been
# lost meanwhile, and worker I was assigned that stage instead.
restart_unarmed() {
    echo "  worker $1 was assigned another stage"
    kill_join "$1"
    worker_begin "$1"
}

# ---- faults ----

# The spare is armed to die at the given point; the owner of the stage is killed so that the spare takes
# the stage over.
fault_point() {
    owner_of $SPARE
    armed=$worker
    owner_of "$1"
    old=$worker
    kill_join "$armed"
    step=$(($(steps_in $RUN) + 4))
    [ "$2" = restore ] && step=0
    worker_begin "$armed" --fault "$2:$1:$step"
    wait_until "the armed worker is a spare" is_spare "$armed" || return
    before=$(steps_in $RUN)
    began=$(now_ms)
    kill_join "$old"
    wait_until "the spare takes a stage" is_serving "$armed" || return
    worker_begin "$old"
    [ "$2" = restore ] || wait_for_recovery $RUN kill "$began" "$before" || return
    wait_until "the worker dies at $2" is_dead_or_moved "$armed" "$1" || return
    is_dead "$armed" || { restart_unarmed "$armed" && return; }
    before=$(steps_in $RUN)
    began=$(now_ms)
    wait "$(pid_of_join "$armed")" 2>/dev/null
    grep -q "killing this worker at $2, stage $1" "join-$armed.err" || abort_test "worker $armed did not die at the requested point"
    echo "$1 $2" >>pairs
    wait_for_recovery $RUN point "$began" "$before"
    worker_begin "$armed"
}

fault_disk() {
    if [ -z "$is_small" ]; then
        echo "  skipped: needs root"
        return
    fi
    dd if=/dev/zero of=small/filler bs=4k 2>/dev/null
    sleep_ms "$2"
    [ $(($2 % 2)) -eq 0 ] || coordinator_kill # kill the coordinator while the disk is full
    rm small/filler
    [ $(($2 % 2)) -eq 0 ] || coordinator_begin
    wait_for_recovery $RUN disk "$began" "$before"
}

# No worker is left to take the stage until one joins with a new key.
fault_late() {
    old=$worker
    owner_of $SPARE
    kill_join "$worker"
    kill_join "$old"
    sleep_ms "$2"
    echo "-$n" >"fresh-$old"
    worker_begin "$old"
    wait_for_recovery $RUN late "$began" "$before"
    worker_begin "$worker"
}

# ---- a run ----

# After each fault the stages resume at a step. It must not be earlier than the previous one, or a step
# would be recomputed twice.
check_no_step_lost_twice() {
    sed -n 's/.*all stages ready at step //p' $RUN/events.log |
        awk -v back="$BACK" '$1 + back < best { print "resumed at step " best ", then at " $1; exit 1 } { best = $1 }'
}

small_disk() {
    mkdir -p small
    [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=32m tmpfs small 2>/dev/null && is_small=yes
    trap 'for pid in $(our_processes); do kill -9 $pid; done; [ -z "$is_small" ] || umount -l "$SCRATCH/small"; clean_up' EXIT
}

one_run() {
    n=0
    fault="the start of the run"
    plan "$seed" >plan
    # Each fault takes a few seconds, during which the run computes about six steps per second.
    total=$(awk '{ s += 18; if ($1 != "point") s += $3 / 180 } END { print int(s) + 30 }' plan)
    make_run run.yaml 3 "$total"
    runs train run.yaml --out straight --set stages.count=3 --set train.save_every=10
    coordinator_begin
    for i in 1 2 3 4; do
        invite_begin $i
        worker_begin $i
    done
    while read -r kind stage argument <&5; do
        wait_settled || break
        n=$((n + 1))
        fault="$kind $stage $argument"
        echo "fault $n, step $(steps_in $RUN) of $total: $fault"
        inject "$kind" "$stage" "$argument" 5<&-
    done 5<plan
    [ $n -gt $((FAULTS * 2 / 3)) ] || abort_test "the run ended before enough faults were injected"
    check_no_step_lost_twice || abort_test "a step was lost twice"
    finish_run "seed $seed"
    wait_all_exited
}

sets="--set stages.count=3 --set link.emulate.delay=30ms --set train.save_every=10"
is_small=
: >times
: >pairs
make_corpus
links_begin
small_disk
for seed in $SEEDS; do
    rm -rf "$RUN" straight "$RUN.invite" fresh-* keys-*
    one_run
    echo "seed $seed: $n faults, $(grep -c 'all stages ready' $RUN/events.log) generations, the same bits"
done

echo "$(sort -u pairs | wc -l) of 36 pairs of point and stage were tested"
print_times
