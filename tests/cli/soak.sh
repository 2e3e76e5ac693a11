#!/bin/sh
# soak.sh - a long run whose workers keep coming and going: the coordinator, and a worker that stays,
# take no more memory and no more file descriptors at the end than early on. SECONDS_LONG=1800 for
# half an hour.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/swarm_lib.sh"
SECONDS_LONG=${SECONDS_LONG:-45}

make_corpus
make_run run.yaml 2 1000000
host_begin soak run.yaml --set stages.count=2 --set link.emulate.delay=10ms \
    --set train.save_every=200 --set train.log_every=1000
for i in 1 2 3; do join_begin soak $i; done
wait_steps soak 20

# taken PID: kilobytes and descriptors
taken() {
    echo "$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$1/status") $(ls "/proc/$1/fd" | wc -l)"
}

# stir UNTIL: faults, one after another; worker 1 is left alone.
stir() {
    n=0
    while [ "$(date +%s)" -lt "$1" ]; do
        n=$((n + 1))
        worker=$((n % 2 + 2))
        if [ $((n % 5)) -eq 0 ]; then
            leave_join $worker
        else
            kill_join $worker
        fi
        join_begin soak $worker
        sleep 1
        is_running || fail "the run ended"
    done
}

began=$(date +%s)
stir $((began + SECONDS_LONG / 3))
sleep 1
host_early=$(taken "$HOST")
worker_early=$(taken "$(pid_of_join 1)")
stir $((began + SECONDS_LONG))
sleep 1
host_late=$(taken "$HOST")
worker_late=$(taken "$(pid_of_join 1)")
echo "coordinator: $host_early -> $host_late; worker: $worker_early -> $worker_late (kB, descriptors)"
echo "$(wc -l <soak/metrics.jsonl) lines of metrics, $(grep -c 'all stages stand' soak/events.log) epochs"

# flat EARLY LATE WHO
flat() {
    set -- $1 $2 "$3"
    [ "$3" -le $(($1 + $1 / 10 + 8192)) ] || fail "$5 grew from $1 to $3 kB"
    [ "$4" -le $(($2 + 3)) ] || fail "$5 has $4 descriptors open, it had $2"
}
flat "$host_early" "$host_late" "the coordinator"
flat "$worker_early" "$worker_late" "the worker"
kill -INT "$HOST"
host_ends 130 "an interrupted host"
