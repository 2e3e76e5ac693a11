#!/bin/sh
# strangers.sh - those who should not be in a run are refused, and the run does not notice.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/swarm_lib.sh"
STRANGER=$(dirname "$HELPER")/cli_stranger

make_corpus
make_run run.yaml 2 1600
sets="--set stages.count=2 --set link.emulate.delay=10ms"
runs train run.yaml --out straight --set stages.count=2

# turned_away MODE WORDS [N]
turned_away() {
    "$STRANGER" "$1" "$(cat swarm.invite)" "${3:-1}" >stranger.out || fail "$1: $(cat stranger.out)"
    grep -qE "$2" stranger.out || fail "$1: $(cat stranger.out), expected \"$2\""
    is_running || fail "$1: the run ended"
}

# rss PID: kilobytes
rss() {
    sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$1/status"
}

host_begin swarm run.yaml $sets
turned_away token 'refused: .*the token is wrong'
turned_away version 'refused: .*version 0, expected 1'
turned_away early 'refused: .*talks before it has joined'
turned_away pieces 'refused: .*talks before it has joined'
turned_away other 'refused: .*belongs to run'

join_begin swarm 1
join_begin swarm 2
wait_steps swarm 5
before=$(rss "$HOST")
turned_away noise 'refused: all' 50
turned_away silence 'refused: nearly all' 10000
turned_away token 'refused: .*the token is wrong'
after=$(rss "$HOST")
[ "$after" -lt $((before + 81920)) ] || fail "the coordinator grew from $before to $after kB"
# A sober look at the pace: nobody asserts it on a busy machine.
awk -F'[:,]' '/tokens_per_s/ { for (i = 1; i < NF; i++) if ($i ~ /tokens_per_s/) { s += $(i + 1); n++ } }
    END { printf "%.0f tokens/s, %d steps under attack\n", s / n, n }' swarm/metrics.jsonl
host_ends 0 swarm
same_metrics straight swarm
same_weights straight swarm

# Invites have limits: one machine, and not for ever.
host_begin once run.yaml $sets --uses 1
join_begin once 1
for _ in $(seq 100); do
    grep -q joined once/events.log && break
    sleep 0.05
done
env STRAIT_CLI="$SCRATCH" timeout 20 "$STRAIT" join "$(cat once.invite)" --keys keys-2 \
    --listen 127.0.0.1:0 --threads 1 >/dev/null 2>late.err
code=$?
[ $code -eq 6 ] || fail "a second machine on an invite for one ended with $code, expected 6"
says late.err 'used 1 times'
host_kill
kill_join 1

# What is no invite is refused before anything is dialled.
refuses 2 'does not begin with' join strait2:abc
refuses 2 'is damaged|is cut short' join "$(sed s/.....$/AAAAA/ once.invite)"
