#!/bin/sh
# liars.sh - one worker lies in its messages (tests/liar); the run must finish with the losses and weights
# of an honest run, and no honest worker may be banned or end. Prints a table: the lie, the outcome, and
# the seconds that the run took longer than an honest one.
#
#   SPEED=1e6    what the liar claims to compute per second; with 1e15 it joins first and gets the first
#                stage, otherwise it joins after the other owners and gets the last
# and what liar_lib.sh lists.
#
# Three stages, whose owners are the liar and two others; with two liars, six stages. Where a lie is about
# snapshots, the owner of the second stage dies at step 12, so that copies of them matter. There are two
# spares, or as many as it takes to do without the liars and the dead.
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/liar_lib.sh"
SPEED=${SPEED:-1e6}
[ "$SPEED" != 1e15 ] || PLACE=first
# Replies that nobody awaits, a snapshot of zeros, a neighbour accused falsely.
ALWAYS="--duplicate:reply --zero:snapshot reply.gradients.faults.rejected_prev=1"

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

# begin_liar I LIE: starts liar I, which claims a speed.
begin_liar() {
    speed=$SPEED
    [ "$1" -eq 1 ] || speed=1e15
    env STRAIT_CLI="$SCRATCH" "$LIAR" --seed "$SEED" --lie "join.report.flops=$speed" $(rules_of "$2") \
        join "$(cat "$CASE.invite")" --keys "keys-$CASE-liar-$1" --name liar --listen 127.0.0.1:0 --threads 1 \
        >>"$CASE.out" 2>&1 </dev/null &
    liars="$liars $!"
}

# join_liar I LIE: starts it and waits until it has joined; it may not be able to.
join_liar() {
    n_before=$(grep -cE 'joined|disconnected' "$CASE/events.log")
    begin_liar "$@"
    for _ in $(seq 60); do
        [ "$(grep -cE 'joined|disconnected' "$CASE/events.log")" -eq "$n_before" ] || break
        sleep 0.05
    done
}

# run_case LIE[;LIE]: runs a swarm with one liar among three owners, or two among six.
run_case() {
    honest=
    liars=
    n_liars=0
    fault=
    n_spares=2
    needs_restore "$1" && fault="--fault applied:1:12"
    n_stages=$((3 * $(echo "$1" | tr ';' '\n' | wc -l)))
    HOST_LOG=$CASE.err
    began=$(now_ms)
    host_begin "$CASE" run.yaml $sets --set "stages.count=$n_stages" --rebalance 0 --lease 4 --stall 4
    n_liars=$((n_stages / 3))
    second=1 # the honest worker that gets the second stage
    if [ "$SPEED" != 1e15 ] && [ $n_liars -eq 1 ]; then second=2; else join_liar $n_liars "${1##*;}"; fi
    for i in $(seq $((n_stages - n_liars))); do
        if [ "$i" -eq $second ]; then begin_worker "$i" $fault; else begin_worker "$i"; fi
        wait_for_text "$CASE/events.log" "w$CASE-$i .*joined"
    done
    [ "$SPEED" = 1e15 ] && [ $n_liars -eq 1 ] || join_liar 1 "${1%%;*}"
    [ -z "$fault" ] || n_spares=$((n_liars + 1))
    for i in $(seq $n_spares); do begin_worker "spare-$i"; done
    deadline=$((began + 1000 * LIMIT))
    while is_running && [ "$(now_ms)" -lt $deadline ]; do sleep 0.05; done
    took=$(($(now_ms) - began))
    judge
}

# judge: sets $outcome for a run that has ended, or should have.
judge() {
    told=$(grep '^liar: step' "$CASE.out" | grep -cvE 'flops=1e(6|15)$')
    outcome="does not finish"
    is_running && return
    outcome="crashes the liar itself"
    for pid in $liars; do has_crashed "$pid" && return; done
    outcome="crashes an honest worker"
    for pid in $honest; do has_crashed "$pid" && return; done
    wait "$HOST" 2>/dev/null
    code=$?
    outcome="ends the run with $code"
    [ $code -eq 0 ] || return
    outcome="bans an honest worker"
    grep -q "worker w.*banned" "$CASE/events.log" && return
    outcome="honest neighbours part"
    grep -q 'w.*: a peer that is not a neighbour' "$CASE/events.log" && return
    outcome="other weights"
    "$HELPER" "$CASE" | sort | cmp -s - straight.weights || return
    outcome="other losses"
    metrics_of "$CASE" | cmp -s - straight.metrics || return
    outcome="not told"
    [ "$told" -gt 0 ] || return
    outcome=held
}

# all_lies: prints every lie that a worker can tell.
all_lies() {
    { "$LIAR" --matrix worker && "$LIAR" --matrix neighbour; } | sort -u
}

make_corpus
make_run run.yaml 6 $STEPS
sets="--set link.deadline=2s"
runs train run.yaml --out straight $sets --set stages.count=3
weights_of straight >straight.weights
metrics_of straight >straight.metrics
try_honest
try_lies
