#!/bin/sh
# liar_chaos.sh - faults drawn from a seed in a swarm with two liars (tests/liar) among six owners, and two
# spares. Every run must finish with the losses and weights of an undisturbed one, and no honest worker may be
# banned. A failure prints the seed, which repeats the same faults.
#
#   SEED=1       seed of the faults; SEEDS="1 2 3": one run after another
#   FAULTS=4     faults per run; every other one is a lie
#   LONGEST=5    longest time that a link is cut, in seconds
#   MEDIAN=      if set, the most seconds that the median recovery may take
#   KEEP=FOLDER  where the log of each run goes
#
# Faults: kill -9 of a worker, of the coordinator, and of both; a paused worker; links that are cut, silent, half
# open or slow (tap.c); a worker that leaves on request. A lie is drawn from all fields and values of all messages,
# less those of tests/liar/known-failures: a liar joins with a new key and the highest speed, an owner is killed,
# and the liar takes the stage and lies from then on. From the first message it changed, two steps must follow.
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/liar_lib.sh"
SEEDS=${SEEDS:-${SEED:-1}}
FAULTS=${FAULTS:-4}
LONGEST=${LONGEST:-5}
SPARE=none
RUN=run
N_STAGES=6
N_WORKERS=6
. "$(dirname "$0")/../chaos_lib.sh"

abort_test() {
    tail -n 30 $RUN/events.log >&2
    tail -n 3 liar-1.err liar-2.err >&2
    fail "$*, at fault $n ($fault); SEEDS=$seed FAULTS=$FAULTS LONGEST=$LONGEST repeats it"
}

# plan: prints the faults of a run, one per line: kind, stage, milliseconds or lie.
plan() {
    { "$LIAR" --matrix worker && "$LIAR" --matrix neighbour; } | sort -u | grep -vxFf known.lies |
        grep -v '^join.token' | SEED=$seed shuffle $((FAULTS + 2)) >lies.drawn
    awk -v seed="$seed" -v faults="$FAULTS" -v longest="$LONGEST" -v stages=$N_STAGES '
    function draw(n) { state = (state * 16807) % 2147483647; return int(state / 64) % n }
    function lasts(kind) {
        if (kind == "stop") return 1000 + draw(6000)
        if (kind == "slow") return 1000 + draw(3000)
        if (kind ~ /^(cut|hold|half|back)$/) return int(1000 * longest ^ (draw(1001) / 1000))
        return draw(1500)
    }
    { lie[NR] = $0 }
    END {
        n_kinds = split("kill host both stop cut hold half back slow leave", kind, " ")
        state = seed * 7919 + 1
        for (i = 1; i <= faults; i++) {
            k = i % 2 ? "lie" : kind[draw(n_kinds) + 1]
            print k, draw(stages), k == "lie" ? lie[i] : lasts(k)
        }
    }' lies.drawn
}

# liar_begin I LIE: starts liar I with a new key; waits until it has joined, if it can. It claims the highest
# speed, so that it is the first spare to get a stage.
liar_begin() {
    came=$(grep -cE "liar.*(joined|disconnected)" $RUN/events.log)
    env STRAIT_CLI="$SCRATCH" "$LIAR" --seed "$seed" --lie join.report.flops=1e15 $(rules_of "$2") \
        join "$(cat $RUN.invite)" --keys "keys-liar-$n-$1" --name liar --listen "$ADDRESS:0" --threads 1 \
        >"liar-$1.err" 2>&1 </dev/null &
    echo $! >"join-liar-$1.pid"
    for _ in $(seq 60); do
        [ "$(grep -cE "liar.*(joined|disconnected)" $RUN/events.log)" -eq "$came" ] || break
        sleep 0.05
    done
}

# liar_end I: kills liar I and counts its lie if it had an occasion to tell it.
liar_end() {
    kill_join "liar-$1"
    grep '^liar: step' "liar-$1.err" | grep -v 'flops=1e15$' | cut -d ' ' -f 4- | sort -u >>told
}

has_lied() {
    grep '^liar: step' "liar-$1.err" | grep -qv 'flops=1e15$'
}

# honest_owner STAGE: sets $worker to an honest worker that owns this stage or the next possible one.
honest_owner() {
    for i in $(seq "$1" $(($1 + N_STAGES - 1))); do owner_of $((i % N_STAGES)) && return; done
    return 1
}

fault_lie() {
    which=$((n / 2 % 2 + 1))
    liar_end $which
    wait_until progress has_reached_step $RUN $(($(steps_in $RUN) + 2)) || return
    liar_begin $which "$2"
    fault_kill "$1" 0 || return
    for _ in $(seq 100); do
        has_lied $which && break
        sleep 0.05
    done
    has_lied $which || { echo "  not told yet" && return; }
    before=$(steps_in $RUN)
    began=$(now_ms)
    wait_for_recovery $RUN lie "$began" "$before"
}

# The killed worker comes back at once: without a spare the run waits for it.
fault_kill() {
    honest_owner "$1" || return 0
    before=$(steps_in $RUN)
    began=$(now_ms)
    kill_join "$worker"
    worker_begin "$worker"
    wait_for_recovery $RUN kill "$began" "$before"
}

# It comes back at once, as above.
fault_leave() {
    leave_join "$worker"
    worker_begin "$worker"
    wait_for_recovery $RUN leave "$began" "$before"
}

one_run() {
    n=0
    fault="the start of the run"
    plan >plan
    total=$((30 * FAULTS + 40))
    make_run run.yaml $N_STAGES "$total"
    runs train run.yaml --out straight --set stages.count=$N_STAGES --set train.save_every=10
    coordinator_begin
    liar_begin 1 "$(sed -n $((FAULTS + 1))p lies.drawn)"
    liar_begin 2 "$(sed -n $((FAULTS + 2))p lies.drawn)"
    for i in $WORKERS; do
        invite_begin "$i"
        worker_begin "$i"
    done
    wait_until "the first steps" has_reached_step $RUN 3
    while read -r kind stage argument <&5; do
        wait_until progress has_reached_step $RUN $(($(steps_in $RUN) + 1)) || break
        n=$((n + 1))
        fault="$kind $stage $argument"
        echo "fault $n, step $(steps_in $RUN) of $total: $fault"
        honest_owner "$stage"
        inject "$kind" "$(stage_of "$worker")" "$argument" 5<&-
    done 5<plan
    [ $n -gt $((FAULTS * 2 / 3)) ] || abort_test "the run ended before enough faults were injected"
    finish_run "seed $seed"
    [ -z "${KEEP:-}" ] || cp $RUN/events.log "$KEEP/$seed.log"
    ! grep "worker w.*banned" $RUN/events.log || abort_test "an honest worker was banned"
    for i in 1 2; do liar_end $i; done
    wait_all_exited
}

# check_median: with MEDIAN, fails if the median recovery took longer.
check_median() {
    [ -z "${MEDIAN:-}" ] || cut -d ' ' -f 2 times | sort -n | awk -v most="$MEDIAN" '{ v[NR] = $1 / 1000 }
        END { exit v[int((NR + 1) / 2)] > most }' || fail "the median recovery took longer than $MEDIAN s"
}

sets="--set stages.count=$N_STAGES --set link.emulate.delay=10ms --set link.deadline=2s --set train.save_every=10 --lease 4 --stall 4"
: >times
: >told
make_corpus
links_begin
for seed in $SEEDS; do
    rm -rf $RUN straight $RUN.invite keys-*
    one_run
    echo "seed $seed: $n faults, $(grep -c 'all stages ready' $RUN/events.log) generations, the same bits"
done
echo "$(sort -u told | wc -l) lies were told"
print_times
check_median
