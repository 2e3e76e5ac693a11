#!/bin/sh
# liars.sh - one worker lies in its messages (tests/liar); the run must finish with the losses and weights
# of an honest run, and no honest worker may be banned or end. Prints a table: the lie, the outcome, and
# the seconds that the run took longer than an honest one.
#
#   SPEED=1e6    what the liar claims to compute per second: the slowest of the first three workers gets
#                the last stage, the fastest (1e15) the first
# and what liar_lib.sh lists.
#
# Three stages, whose owners are the liar and two others, and two spares. Where a lie is about snapshots,
# the owner of the middle stage dies at step 12, so that the copies of them matter.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/swarm_lib.sh"
. "$(dirname "$0")/liar_lib.sh"
SPEED=${SPEED:-1e6}

# needs_restore LIE: whether a stage has to be restored for the lie to matter.
needs_restore() {
    case $1 in
    *snapshot* | *inventory* | *restore*) return 0 ;;
    *) return 1 ;;
    esac
}

# begin_worker I ARGS...: starts honest worker I of this case.
begin_worker() {
    id=$CASE-$1
    shift
    join_begin "$CASE" "$id" "$@"
    honest="$honest $!"
}

# run_case LIE: runs a swarm with one liar; sets $outcome and $took.
run_case() {
    honest=
    fault=
    needs_restore "$1" && fault="--fault applied:1:12"
    HOST_LOG=$CASE.err
    began=$(now_ms)
    host_begin "$CASE" run.yaml $sets --rebalance 0
    env STRAIT_CLI="$SCRATCH" "$LIAR" --seed "$SEED" --lie "join.report.flops=$SPEED" $(rules_of "$1") \
        join "$(cat "$CASE.invite")" --keys "keys-$CASE" --name liar --listen 127.0.0.1:0 --threads 1 \
        >"$CASE.out" 2>&1 </dev/null &
    liar=$!
    wait_for_text "$CASE/events.log" 'liar .*joined|disconnected'
    for i in 1 2; do begin_worker $i $fault; done
    wait_for_text "$CASE/events.log" "w$CASE-1 .*joined" "w$CASE-2 .*joined"
    for i in 3 4; do begin_worker $i; done
    deadline=$((began + 1000 * LIMIT))
    while is_running && [ "$(now_ms)" -lt $deadline ]; do sleep 0.05; done
    took=$(($(now_ms) - began))
    judge
}

# judge: sets $outcome for a run that has ended, or should have.
judge() {
    outcome="does not finish"
    is_running && return
    outcome="crashes the liar itself"
    has_crashed $liar && return
    outcome="crashes an honest worker"
    for pid in $honest; do
        has_crashed "$pid" && return
    done
    wait "$HOST" 2>/dev/null
    code=$?
    outcome="ends the run with $code"
    [ $code -eq 0 ] || return
    outcome="bans an honest worker"
    grep -q "worker w.*banned" "$CASE/events.log" && return
    outcome="other weights"
    "$HELPER" "$CASE" | sort | cmp -s - straight.weights || return
    outcome="other losses"
    metrics_of "$CASE" | cmp -s - straight.metrics || return
    outcome="not told"
    told=$(grep '^liar: step' "$CASE.out" | grep -cv "flops=$SPEED")
    [ "$told" -gt 0 ] || return
    outcome=held
}

# all_lies: prints every lie that a worker can tell.
all_lies() {
    { "$LIAR" --matrix worker && "$LIAR" --matrix neighbour; } | sort -u
}

make_corpus
make_run run.yaml 3 $STEPS
sets="--set stages.count=3 --set link.deadline=2s"
runs train run.yaml --out straight $sets
weights_of straight >straight.weights
metrics_of straight >straight.metrics
try_honest
try_lies
