#!/bin/sh
# hostile.sh - workers that send non-finite values, or report them falsely of others, are named, lose their stage
# and are banned; the run ends with the losses and weights of a run without them.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/swarm_lib.sh"
HOSTILE=$(dirname "$HELPER")/cli_hostile

make_corpus
make_run run.yaml 2 30
sets="--set stages.count=2"
runs train run.yaml --out straight $sets

# cheat FOLDER MODE AFTER: a hostile worker; its process in $cheat.
cheat() {
    env STRAIT_CLI="$SCRATCH" "$HOSTILE" "$2" "$(cat "$1.invite")" "keys-$2" "$3" >"$2.out" \
        2>/dev/null </dev/null &
    cheat=$!
}

# is_as_ever FOLDER
is_as_ever() {
    host_ends 0 "$1"
    same_metrics straight "$1"
    same_weights straight "$1"
}

# caught MODE AFTER HONEST: runs with such a worker and so many honest ones until it is refused; the
# last one's folder in $last. On a busy machine it may lose its stage for other reasons before that; the
# numbers are as ever all the same.
caught() {
    for again in 1 2 3 4; do
        last=$1-$again
        host_begin "$last" run.yaml $sets
        cheat "$last" "$1" "$2"
        wait_joined "$last" 1
        for honest in $(seq "$3"); do
            join_begin "$last" "$honest"
            [ "$honest" -eq "$3" ] || wait_joined "$last" $((honest + 1))
        done
        wait $cheat
        verdict=$?
        is_as_ever "$last"
        [ $verdict -eq 0 ] || break
    done
    ERR=$1.out
    [ $verdict -eq 6 ] || fail "$1: the cheat ended with $verdict, expected 6"
    says "$1.out" 'authentication: .*non-finite values'
}

# One that sends what is no number, forward or backward, and one that sends too much of one: the
# neighbour says so; the first time is forgiven.
for mode in nan huge; do
    caught $mode 40 2
    says $last/events.log 'w1, stage [01]: rejected [1-9][0-9]* values or snapshots from stage [01]' \
        'hostile .*stage [01]: violation 1 of 2' \
        'hostile .*stage [01]: violation 2 of 2; banned from this run'
done

# It comes again with the same key, also to a coordinator that was killed meanwhile.
host_begin back run.yaml $sets
cheat back nan 0
wait_joined back 1
join_begin back 1
wait $cheat
says nan.out 'authentication: .*non-finite values'
host_kill
host_begin back run.yaml $sets
cheat back nan 0
wait $cheat
says nan.out 'banned from this run: it sent invalid data'
join_begin back 2
is_as_ever back

# One that blames its neighbours: the first may be to blame, the second is not.
caught liar 10 3
says $last/events.log 'hostile .*: reported invalid values from a second worker'

# One that says its own numbers are none: another computes the same and finds that they are.
# The run begins with two, and where the third came too late for that, it is begun anew.
for n in 1 2 3 4 5 6 7 8; do
    host_begin spoil-$n run.yaml $sets --set link.emulate.delay=40ms
    cheat spoil-$n spoil 20
    wait_joined spoil-$n 1
    for i in 1 2; do
        join_begin spoil-$n $i
        wait_joined spoil-$n $((i + 1))
    done
    host_ends 0 spoil
    wait $cheat
    awk '/joined/ { came = NR } /non-finite values; recomputing/ && !seen { seen = NR }
        END { exit seen < came }' spoil-$n/events.log && break
done
same_metrics straight spoil-$n
same_weights straight spoil-$n
says spoil-$n/events.log 'hostile .*: non-finite values; recomputing the step on a spare'

# One that sends non-finite weights: a neighbour finds them in a copy, the coordinator in the data of a
# checkpoint.
caught poison 0 2
says $last/events.log '(snapshot of stage [01] at step [0-9]*: .* non-finite values|rejected [0-9]* values or snapshots from stage [01])'

# One whose snapshots are not of its stage: a tensor has another name.
caught misname 0 2
says $last/events.log '(snapshot of stage [01] at step [0-9]*: tensor "[^"]*" .* is missing|rejected [0-9]* values or snapshots from stage [01])'

# One that wants from the coordinator what its stage does not have, first too much, then another's tensors:
# it gets nothing, and is refused.
host_begin greedy run.yaml $sets --set link.emulate.delay=40ms # to be killed in the middle
for i in 1 2; do join_begin greedy $i; done
wait_steps greedy 12
is_running || fail "greedy: was done before the coordinator could be killed"
host_kill
for i in 1 2; do kill_join $i; done
host_begin greedy run.yaml $sets
cheat greedy greedy 0
join_begin greedy 3
wait $cheat
[ $? -eq 6 ] || fail "greedy: the cheat was not refused"
join_begin greedy 4
is_as_ever greedy
says greedy/events.log 'hostile, stage [01]: wants tensors that its stage does not have: a worker sent an invalid header' \
    'hostile, stage [01]: wants tensors that its stage does not have: tensor .* is missing'

# One whose own images rot: nobody restores them, itself neither, and nothing is believed of a step that
# was made from them.
host_begin rot run.yaml $sets
cheat rot rot 0
wait_joined rot 1
join_begin rot 1
wait_for_text rot/events.log 'hostile .*: violation'
join_begin rot 2
is_as_ever rot

# One that sends its neighbours nothing and says that it computes: its stage goes to a spare as soon as
# there is one, and it is no worse off than that.
host_begin mute run.yaml $sets --set link.deadline=2s
cheat mute mute 40
wait_joined mute 1
join_begin mute 1
wait_for_text mute/events.log 'w1 .*stage [01]: timed out waiting for a neighbour'
join_begin mute 2
is_as_ever mute
wait $cheat || fail "mute: the cheat ended with $?, expected 0"
says mute/events.log 'hostile .*stage [01]: suspected of stalling .*; moving the stage to'

# A run that diverges ends as it does elsewhere, each step that is skipped doubted only once.
wild="$sets --set train.learning_rate=100 --set train.clip=0"
refuses 3 '20 gradients in a row' train run.yaml --out wild $wild
host_begin wilder run.yaml $wild
join_begin wilder 1
join_begin wilder 2
host_ends 3 wilder
same_metrics wild wilder
