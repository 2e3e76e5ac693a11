#!/bin/sh
# flood.sh - one address opens many connections and links and sends nothing; workers at another address
# must still be able to join, and losses and weights must not change.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/lib.sh"
STRANGER=$(dirname "$HELPER")/cli_stranger

make_corpus
make_run run.yaml 2 200
sets="--set stages.count=2"
runs train run.yaml --out straight $sets

host_begin swarm run.yaml $sets
invite=$(cat swarm.invite)
env STRAIT_CLI="$SCRATCH" "$STRANGER" silence "$invite" 10000 127.0.0.2 >silence.out 2>&1 &
silence=$!
env STRAIT_CLI="$SCRATCH" "$STRANGER" links "$invite" 150 >links.out 2>&1 &
links=$!
join_begin swarm 1
join_begin swarm 2
host_ends 0 swarm
same_metrics straight swarm
same_weights straight swarm
kill -9 $silence $links 2>/dev/null
wait $silence $links 2>/dev/null

# rss: prints the resident kilobytes of the coordinator.
rss() {
    sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$HOST/status"
}

# A coordinator that waits for workers must close all of them; keeping them open would take a gigabyte.
host_begin idle run.yaml $sets
before=$(rss)
"$STRANGER" silence "$(cat idle.invite)" 2000 127.0.0.2 >silence.out &
silence=$!
"$STRANGER" links "$(cat idle.invite)" 150 >links.out 2>&1 || fail "links: $(cat links.out)"
says links.out 'refused: all'
wait $silence || fail "silence: $(cat silence.out)"
after=$(rss)
[ -n "${SANITIZED:-}" ] || [ "$after" -lt $((before + 307200)) ] || fail "the coordinator grew from $before to $after kB"

# Strangers that send large messages cost no more, and the memory is returned within seconds.
"$STRANGER" large "$(cat idle.invite)" 150 >large.out 2>&1 || fail "large: $(cat large.out)"
after=$(rss)
for _ in $(seq $((PATIENCE * 10))); do
    later=$(rss)
    [ "$later" -lt $((before + 16384)) ] && break
    sleep 0.1
done
echo "the coordinator: $before kB before, $after kB after large messages, $later kB when they were gone"
[ -n "${SANITIZED:-}" ] || [ "$later" -lt $((before + 16384)) ] || fail "the coordinator kept $later kB of $before"
host_kill
