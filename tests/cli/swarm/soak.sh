#!/bin/sh
# soak.sh - a long run whose workers keep leaving and joining: the coordinator, and a worker that stays,
# must not use more memory or file descriptors at the end than early on. SECONDS_LONG=1800 runs for half
# an hour. Faults are drawn from SEED: kills, orderly leaves, pauses.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/lib.sh"
SECONDS_LONG=${SECONDS_LONG:-45}
draw_from "${SEED:-3}"

make_corpus
make_run run.yaml 2 100000000
host_begin soak run.yaml --set stages.count=2 --set link.emulate.delay=10ms \
    --set train.save_every=200 --set train.valid_every=100 --set train.log_every=1000
for i in 1 2 3; do join_begin soak $i; done
wait_steps soak 20

# usage_of PID: prints resident kilobytes and open descriptors.
usage_of() {
    echo "$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$1/status") $(ls "/proc/$1/fd" | wc -l)"
}

# sample NAME: stores the usage in host_NAME and worker_NAME and prints it.
sample() {
    sleep 1 # lets workers that are joining finish
    eval "host_$1=\$(usage_of \$HOST) worker_$1=\$(usage_of \$(pid_of_join 1))"
    eval "echo \"\$(date -u +%T) $1: coordinator \$host_$1, worker \$worker_$1 (kB, descriptors);\" \
        \"\$n faults, \$(wc -l <soak/metrics.jsonl) lines of metrics\""
}

# inject_until TIME: injects faults one after another until TIME; worker 1 gets none.
n=0
inject_until() {
    while [ "$(date +%s)" -lt "$1" ]; do
        n=$((n + 1))
        draw 2
        worker=$((drawn + 2))
        draw 100
        if [ "$drawn" -lt 60 ]; then
            kill_join $worker
            join_begin soak $worker
        elif [ "$drawn" -lt 85 ]; then
            leave_join $worker
            join_begin soak $worker
        else
            draw 8000
            pause_join $worker
            sleep_ms "$drawn"
            resume_join $worker
        fi
        draw 2000
        sleep_ms "$drawn"
        is_running || fail "the run ended"
        kill -0 "$(pid_of_join 1)" 2>/dev/null || fail "worker 1, which should stay, has ended"
    done
}

began=$(date +%s)
inject_until $((began + SECONDS_LONG / 6))
sample early
inject_until $((began + SECONDS_LONG / 2))
sample midway
inject_until $((began + SECONDS_LONG))
sample late
echo "$n faults, $(grep -c 'all stages ready' soak/events.log) generations"

# check_growth EARLY LATE NAME: fails if memory or descriptors grew.
check_growth() {
    set -- $1 $2 "$3"
    [ "$3" -le $(($1 + $1 / 10 + 8192)) ] || fail "$5 grew from $1 to $3 kB"
    [ "$4" -le $(($2 + 3)) ] || fail "$5 has $4 descriptors open, it had $2"
}
check_growth "$host_early" "$host_late" "the coordinator"
check_growth "$worker_early" "$worker_late" "the worker"
kill -INT "$HOST"
host_ends 130 "an interrupted host"
