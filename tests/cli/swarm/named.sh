#!/bin/sh
# named.sh - what the host and honest workers do about single lies (tests/liar), by their logs: malformed messages
# are violations, a replayed step that gives another gradient norm moves the stage, and a piece of a snapshot
# cannot make a neighbour allocate what it announces. The runs must end with the bits of an undisturbed one.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/lib.sh"
LIAR=$(dirname "$HELPER")/../liar/cli_liar

make_corpus
make_run run.yaml 3 24
sets="--set stages.count=3 --set train.save_every=1000"
runs train run.yaml --out straight $sets

# liar_begin FOLDER SPEED RULES...: starts a liar that claims to compute SPEED FLOP/s, and waits until it has
# joined.
liar_begin() {
    lied=$1
    claimed=$2
    shift 2
    env STRAIT_CLI="$SCRATCH" "$LIAR" --lie "join.report.flops=$claimed" "$@" join "$(cat "$lied.invite")" \
        --keys "keys-liar-$lied" --name liar --listen 127.0.0.1:0 --threads 1 >"$lied.out" 2>&1 </dev/null &
    wait_for_text "$lied/events.log" 'liar .*joined'
}

# owners_begin FOLDER N ARGS...: starts N workers one after the other, so that they get the stages in that order.
owners_begin() {
    owned=$1
    n=$2
    shift 2
    for i in $(seq "$n"); do
        join_begin "$owned" "$owned-$i" "$@"
        wait_for_text "$owned/events.log" "w$owned-$i .*joined"
    done
}

ends_unharmed() {
    host_ends 0 "$1"
    same_metrics straight "$1"
    same_weights straight "$1"
    ! grep -q 'worker w.*banned' "$1/events.log" || fail "$1: an honest worker was banned"
}

# Replies that are too short. TLS protects messages, so they are the worker's own doing: the second bans it, and
# it cannot go on by reconnecting.
host_begin short run.yaml $sets
owners_begin short 2
liar_begin short 1e6 --short reply.update --from-step 6
wait_for_text short/events.log "'liar' is disconnected: malformed reply" 'liar .*violation 1 of 2' \
    'liar .*violation 2 of 2; banned'
join_begin short short-3
ends_unharmed short

# A spare takes the second stage over and reports other gradients when it replays steps: it loses the stage. On a
# busy machine the owner may die right after a snapshot, so that nothing is replayed.
for again in 1 2 3 4; do
    case=replay-$again
    host_begin $case run.yaml $sets --rebalance 0
    owners_begin $case 3 --fault applied:1:12
    liar_begin $case 1e15 --lie 'reply.gradients.squares=*2'
    for i in 4 5; do join_begin $case $case-$i; done
    host_ends 0 $case
    grep -q 'replayed steps differ' $case/events.log && break
done
says $case/events.log 'liar .*, stage 1: restored .* and replayed steps differ from the first time; moving the stage to w'
same_metrics straight $case
same_weights straight $case

# Pieces of a copy announce eight gigabytes. The neighbour, which has two, takes no memory for them and stays.
host_begin small run.yaml $sets --rebalance 0 --max-lost-work 0.01 # copies are sent after every step
liar_begin small 1e15 --lie snapshot.total=+8000000000 --from-step 4
[ -n "${SANITIZED:-}" ] || ulimit -v 2000000 # sanitizers reserve terabytes
owners_begin small 2
join_begin small small-3
ends_unharmed small
cat join-small-[12].err >owners.err # the faster of the two is the neighbour
says owners.err 'dropped the copy of a neighbour.s snapshot'
! grep -q 'no memory for a copy' join-small-*.err || fail "small: memory was taken for what a neighbour announced"
