#!/bin/sh
# everyone.sh - all workers of a swarm compute: newcomers become replicas of stages, and when one is killed, at any
# point of a step, the others go on in the same step, with the bits of one pipeline. SEEDS: runs, each with FAULTS
# kills.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/lib.sh"
SPARES=0
FAULTS=${FAULTS:-2}

make_corpus
make_run run.yaml 3 60
fixed="--set train.batch_tokens=256"
sets="--set stages.count=2 --set link.emulate.delay=15ms $fixed"
runs train run.yaml --out straight --set stages.count=2 $fixed

# never_back FOLDER: checks that no stage was restored to an earlier step.
never_back() {
    grep 'all stages ready' "$1/events.log" | grep -vE 'ready at step 0$|stage none restored .*; 0 stage-steps' >back
    [ ! -s back ] || fail "$1 went back: $(cat back) $(tail -n 30 "$1/events.log")"
}

# matches STRAIGHT FOLDER: the run ends, with the metrics and weights of the other, and never went back.
matches() {
    host_ends 0 "$2"
    same_metrics "$1" "$2"
    same_weights "$1" "$2"
    never_back "$2"
}

# has_replicas FOLDER N: all workers of the run compute, N of them as further replicas.
has_replicas() {
    [ "$(jq '[.workers[] | select(.replica > 0)] | length' "$1/swarm.json" 2>/dev/null || echo 0)" -ge "$2" ]
}

# On a busy machine the run may be over before all four compute: then it is tried again.
for again in 1 2 3 4; do
    rm -rf all join-[1-4].err
    host_begin all run.yaml $sets --set stages.replicas=2
    for i in 1 2 3 4; do join_begin all $i; done
    wait_until 'all workers compute' has_replicas all 2 && break
    wait_all_exited
done
runs swarm status all
says "$OUT" 'connected  stage 0, replica 1 of 2' 'connected  stage 1, replica 1 of 2'
runs watch all --once
says "$OUT" 'stage 0, replica 0 of 2' 'stage 0, replica 1 of 2' 'stage 1, replica 0 of 2' 'stage 1, replica 1 of 2'
leave_join 1 # an owner or a further replica: nothing is lost
matches straight all
wait_all_exited
says all/events.log 'w[0-9] .*, stage [01]: becomes a further replica' 'w1 .*asked to leave'
cat join-[1-4].err >joined.err
says joined.err 'serving stage [01] of 2, replica [01] of 2' 'this run: .*, stage [01] of 2, replica [01] of 2'
# Replicas share the tokens of a stage: together they contributed those of two stages, 30.72k, and few more.
sed -n 's/^summary: contributed \([0-9.]*\)\(k*\) tokens.*/\1 \2/p' joined.err | awk '{ n += $2 == "k" ? 1000 * $1 : $1 }
    END { exit !(n > 30000 && n < 40000) }' || fail "tokens contributed: $(grep ^summary joined.err)"

# With --spares 1 one of the same four waits.
SPARES=1
host_begin spare run.yaml $sets --set stages.replicas=2 --set train.steps=400
for i in 1 2 3 4; do join_begin spare $i; done
wait_until 'one worker helps' has_replicas spare 1
sleep 2
! has_replicas spare 2 || fail "no spare was kept"
kill_join 1
host_kill
for i in 2 3 4; do kill_join $i; done
SPARES=0

# Homes that send slowly: the sums of gradients would take longer than a replica saves, and nobody asked for one.
host_begin slow run.yaml --set stages.count=2 --set link.emulate.up=2mbit $fixed --set train.steps=100000
for i in 1 2 3; do join_begin slow $i; done
wait_for_text slow/events.log 'more replicas would bring 0\.[0-9]+ times the speed; idle workers stay spares'
wait_steps slow $(($(steps_in slow) + 2))
! grep 'becomes a further replica' slow/events.log || fail "a worker was placed at a loss"
host_kill
for i in 1 2 3; do kill_join $i; done

# all_compute FOLDER N: as has_replicas, and they have the state of their stage: one that has not could not go on
# alone.
all_compute() {
    has_replicas "$1" "$2" && awk '/becomes a further replica/ { ready = 0 } /all stages ready/ { ready = 1 }
        END { exit !ready }' "$1/events.log"
}

# Kills a worker as soon as all six compute, FAULTS times; it comes back. Every second one kills itself at a point
# of a step that is drawn from the seed, if it comes to serve that stage.
points="begin forward backward norm update applied snapshot commit restore"
pick() { # pick N WORDS...: sets $picked to word N
    shift "$1"
    picked=$2
}
kill_run() {
    draw_from "$1"
    name=kills-$1
    host_begin "$name" run.yaml $sets --set stages.replicas=3 --set train.steps=$steps
    for i in 1 2 3 4 5 6; do join_begin "$name" "$i"; done
    draw 6
    victim=$((drawn + 1))
    for fault in $(seq "$FAULTS"); do
        wait_until 'all workers compute' all_compute "$name" 4 || return
        draw 400
        sleep_ms "$drawn"
        is_running || fail "$name ended before its last fault: give it more steps"
        for _ in $(seq 20); do # it may kill itself
            [ -z "$(tail -n 1 "$SCRATCH/fault-$victim" 2>/dev/null)" ] && break
            kill -0 "$(pid_of_join $victim)" 2>/dev/null || break
            sleep 0.1
        done
        kill_join $victim
        : >"$SCRATCH/fault-$victim"
        draw 9
        pick "$drawn" $points
        draw 2
        [ $((fault % 2)) -eq 0 ] && at= || at="--fault $picked:$drawn:$(($(steps_in "$name") + 45))"
        join_begin "$name" $victim $at
        [ -z "$at" ] || { echo "$at" >"$SCRATCH/fault-$victim" && continue; }
        draw 6
        victim=$((drawn + 1))
    done
    matches straight-long "$name"
    wait_all_exited
    echo "seed $1: $FAULTS kills, $(grep -c 'all stages ready' "$name/events.log") generations, same bits, never back"
}
steps=$((60 + 50 * FAULTS))
runs train run.yaml --out straight-long --set stages.count=2 $fixed --set train.steps=$steps
for seed in ${SEEDS:-1}; do kill_run "$seed"; done
