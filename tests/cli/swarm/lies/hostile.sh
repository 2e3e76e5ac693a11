#!/bin/sh
# hostile.sh - workers that send invalid values, or falsely report others for it, are logged and lose their
# stage; those whose data the coordinator itself found invalid are banned. Losses and weights must be those of
# a run without them (hostile.c).
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../lib.sh"
HOSTILE=$(dirname "$HELPER")/cli_hostile

make_corpus
make_run run.yaml 2 30
sets="--set stages.count=2"
runs train run.yaml --out straight $sets

# hostile_begin FOLDER MODE AFTER: starts a hostile worker; $hostile is its process id.
hostile_begin() {
    env STRAIT_CLI="$SCRATCH" "$HOSTILE" "$2" "$(cat "$1.invite")" "keys-$2" "$3" >"$2.out" \
        2>/dev/null </dev/null &
    hostile=$!
}

# ends_unharmed FOLDER: the run succeeds with the losses and weights of the undisturbed run.
ends_unharmed() {
    host_ends 0 "$1"
    same_metrics straight "$1"
    same_weights straight "$1"
}

# is_out MODE AFTER HONEST: runs with a hostile worker and HONEST honest ones, up to four times, until
# the hostile one has lost its stage or was banned; $last is the folder of the last run. On a busy machine
# it may lose its stage for other reasons before that. Every run must end unharmed, and no honest worker is
# banned for what another says.
is_out() {
    for again in 1 2 3 4; do
        last=$1-$again
        host_begin "$last" run.yaml $sets
        hostile_begin "$last" "$1" "$2"
        wait_joined "$last" 1
        for honest in $(seq "$3"); do
            join_begin "$last" "$honest"
            [ "$honest" -eq "$3" ] || wait_joined "$last" $((honest + 1))
        done
        wait $hostile
        hostile_code=$?
        ends_unharmed "$last"
        grep -q 'worker w.*banned' "$last/events.log" && fail "$1: an honest worker was banned"
        grep -qE "$out_line" "$last/events.log" && break
    done
    ERR=$last/events.log
    [ $hostile_code -eq 0 ] || [ $hostile_code -eq 6 ] ||
        fail "$1: the hostile worker ended with $hostile_code, expected 0 or 6"
    says "$last/events.log" "$out_line"
}
out_line='hostile .*(two workers contradict it; moving the stage to|banned from this run)'

# Non-finite values, and values that are too large, forward or backward: the neighbour reports them, and a
# spare in its place does too.
for mode in nan huge; do
    is_out $mode 40 2
    says $last/events.log 'w1, stage [01]: rejected [1-9][0-9]* values or snapshots from stage [01]' \
        'hostile .*stage [01]: a neighbour rejected its values or snapshots'
done

# False reports: nobody is banned for one worker's word; the reporter is replaced first.
host_begin liar run.yaml $sets --set link.emulate.delay=10ms
hostile_begin liar liar 10
wait_joined liar 1
for i in 1 2 3; do
    join_begin liar $i
    wait_joined liar $((i + 1))
done
ends_unharmed liar
wait $hostile
says liar/events.log 'hostile .*: rejected values or snapshots of a neighbour; moving the stage to w'
! grep -q 'worker w.*banned' liar/events.log || fail "liar: an honest worker was banned"

# A worker reports its own values as non-finite: a spare recomputes the step and finds them finite. The
# run starts with two workers; it is repeated if the third joined after the report.
for n in 1 2 3 4 5 6 7 8; do
    host_begin nonfinite-$n run.yaml $sets --set link.emulate.delay=40ms
    hostile_begin nonfinite-$n nonfinite 20
    wait_joined nonfinite-$n 1
    for i in 1 2; do
        join_begin nonfinite-$n $i
        wait_joined nonfinite-$n $((i + 1))
    done
    host_ends 0 nonfinite
    wait $hostile
    awk '/joined/ { came = NR } /non-finite or implausible values; recomputing/ && !seen { seen = NR }
        END { exit seen < came }' nonfinite-$n/events.log && break
done
same_metrics straight nonfinite-$n
same_weights straight nonfinite-$n
says nonfinite-$n/events.log 'hostile .*: non-finite or implausible values; recomputing the step on a spare'

# Without a spare the worker itself recomputes the step, which is then skipped. When it goes on, the two owners
# exchange their stages, which shows that the reports are false; then the run waits for another worker.
host_begin alone run.yaml $sets
hostile_begin alone nonfinite 20
wait_joined alone 1
join_begin alone 1
wait_for_text alone/events.log 'hostile .*another owner recomputes the step' 'hostile .*banned from this run'
is_running || fail "alone: a worker without a spare beside it ended the run"
join_begin alone 2
host_ends 0 alone
[ "$(steps_in alone)" -eq 30 ] || fail "alone: $(steps_in alone) steps of 30"
! grep -q 'worker w.*banned' alone/events.log || fail "alone: an honest worker was banned"

# Non-finite weights: a neighbour finds them in a copy, the coordinator in the data of a checkpoint.
is_out poison 0 2
says $last/events.log '(snapshot of stage [01] at step [0-9]*: .* non-finite values|rejected [0-9]* values or snapshots from stage [01])'

# Snapshots that do not match the stage: a tensor has another name.
is_out misname 0 2
says $last/events.log '(snapshot of stage [01] at step [0-9]*: tensor "[^"]*" .* is missing|rejected [0-9]* values or snapshots from stage [01])'

# A worker requests data that its stage does not have, first too much, then tensors of another stage. The
# coordinator sends nothing and bans it.
host_begin greedy run.yaml $sets --set link.emulate.delay=40ms # slow enough to be killed midway
for i in 1 2; do join_begin greedy $i; done
wait_steps greedy 12
is_running || fail "greedy: the run ended before the coordinator could be killed"
host_kill
for i in 1 2; do kill_join $i; done
host_begin greedy run.yaml $sets
hostile_begin greedy greedy 0
join_begin greedy 3
wait $hostile
[ $? -eq 6 ] || fail "greedy: the hostile worker was not refused"
# A ban is persistent: the same key is refused after the coordinator was killed and restarted.
host_kill
host_begin greedy run.yaml $sets
hostile_begin greedy greedy 0
wait $hostile
says greedy.out 'banned from this run: it sent invalid data'
join_begin greedy 4
ends_unharmed greedy
says greedy/events.log 'hostile, stage [01]: requested tensors that its stage does not have: a worker sent an invalid header' \
    'hostile, stage [01]: requested tensors that its stage does not have: tensor .* is missing'

# A worker's own snapshots become non-finite: no worker restores them, and no step that was computed from
# them is accepted.
host_begin rot run.yaml $sets
hostile_begin rot rot 0
wait_joined rot 1
join_begin rot 1
wait_for_text rot/events.log 'hostile .*: (violation|a neighbour rejected)'
join_begin rot 2
ends_unharmed rot

# A worker sends nothing to its neighbours and reports progress: its stage moves to a spare as soon as
# there is one. The worker is not banned, since a bad link looks the same.
host_begin mute run.yaml $sets --set link.deadline=2s
hostile_begin mute mute 40
wait_joined mute 1
join_begin mute 1
wait_for_text mute/events.log 'w1 .*stage [01]: timed out waiting for a neighbour'
join_begin mute 2
ends_unharmed mute
wait $hostile || fail "mute: the hostile worker ended with $?, expected 0"
says mute/events.log 'hostile .*stage [01]: suspected of failures at its boundaries; moving the stage to'

# A run that diverges ends as with strait train; each skipped step is verified only once.
diverged="$sets --set train.learning_rate=100 --set train.clip=0"
refuses 3 '20 gradients in a row' train run.yaml --out diverged $diverged
host_begin diverged-swarm run.yaml $diverged
join_begin diverged-swarm 1
join_begin diverged-swarm 2
host_ends 3 diverged-swarm
same_metrics diverged diverged-swarm
