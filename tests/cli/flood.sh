#!/bin/sh
# flood.sh - one address opens many connections and links and sends nothing; workers at another address
# must still be able to join, and losses and weights must not change.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/swarm_lib.sh"
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

# A coordinator that waits for workers must close all of them; keeping them open would take a gigabyte.
host_begin idle run.yaml $sets
before=$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$HOST/status")
"$STRANGER" silence "$(cat idle.invite)" 2000 127.0.0.2 >silence.out &
silence=$!
"$STRANGER" links "$(cat idle.invite)" 150 >links.out 2>&1 || fail "links: $(cat links.out)"
says links.out 'refused: all'
wait $silence || fail "silence: $(cat silence.out)"
after=$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$HOST/status")
[ -n "${SANITIZED:-}" ] || [ "$after" -lt $((before + 307200)) ] || fail "the coordinator grew from $before to $after kB"
host_kill
