#!/bin/sh
# liar_hosts.sh - the coordinator lies in its messages to workers (tests/liar). Nobody can save such a run;
# the workers must neither crash nor take more memory than a stage needs. Settings: liar_lib.sh, and
#
#   MEGABYTES=64  of memory that a worker lends
#   WATCH=3       seconds that it is watched
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/liar_lib.sh"
PEAK=$(dirname "$HELPER")/cli_peak
MEGABYTES=${MEGABYTES:-64}
WATCH=${WATCH:-3}
PAIRS=0 # a run has one coordinator
# Sizes that fit no memory.
ALWAYS="task.assign.valid_windows=4000000 command.open.n_slots=1000000"

# run_case LIE: runs a swarm whose coordinator lies; sets $outcome and $took.
run_case() {
    began=$(now_ms)
    env STRAIT_CLI="$SCRATCH" "$LIAR" --seed "$SEED" $(rules_of "$1") host run.yaml --out "$CASE" $sets \
        --listen "127.0.0.1:$(cat "$CASE.port")" --keys keys-host >"$CASE.invite" 2>"$CASE.out" </dev/null &
    HOST=$!
    folder=$CASE HOST_LOG=$CASE.out
    wait_for_invite
    for i in 1 2 3; do
        env STRAIT_CLI="$SCRATCH" "$PEAK" "$STRAIT" join "$(cat "$CASE.invite")" --keys "keys-$CASE-$i" \
            --memory "${MEGABYTES}MB" --listen 127.0.0.1:0 --threads 1 >"$CASE.peak-$i" 2>"$CASE.err-$i" </dev/null &
        eval "worker_$i=$!"
    done
    while is_running && [ $(($(now_ms) - began)) -lt $((WATCH * 1000)) ]; do sleep 0.05; done
    took=$(($(now_ms) - began))
    judge
}

# judge: ends the workers that are left and sets $outcome. cli_peak exits with 1 after a signal, which no
# error of the program does.
judge() {
    outcome=held
    told=$(grep -c '^liar: step' "$CASE.out")
    [ "$told" -gt 0 ] || outcome="not told"
    for i in 1 2 3; do
        eval "pid=\$worker_$i"
        child=$(cat "/proc/$pid/task/$pid/children" 2>/dev/null)
        [ -z "$child" ] || kill -9 $child 2>/dev/null
        wait "$pid" 2>/dev/null
        code=$?
        [ -n "$child" ] || [ $code -ne 1 ] || outcome="crashes a worker"
        [ "$(cat "$CASE.peak-$i")" -le $((MEGABYTES << 20)) ] ||
            outcome="takes $(($(cat "$CASE.peak-$i") >> 20)) MB of a worker"
    done
}

# all_lies: prints every lie that a coordinator can tell.
all_lies() {
    "$LIAR" --matrix host
}

make_corpus
make_run run.yaml 3 $STEPS
sets="--set stages.count=3 --set link.deadline=2s"
try_honest
try_lies
