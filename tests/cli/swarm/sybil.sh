#!/bin/sh
# sybil.sh - a holder of the token joins with one new key after another. It is slowed down, its keys are
# not remembered, the log stays short, and workers at another address join and finish the run.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/lib.sh"
STRANGER=$(dirname "$HELPER")/cli_stranger
N=150

make_corpus
make_run run.yaml 2 30
runs train run.yaml --out straight --set stages.count=2
host_begin swarm run.yaml --set stages.count=2
"$STRANGER" sybil "$(cat swarm.invite)" $N 127.0.0.2 >sybil.out 2>&1 || fail "sybil: $(tail -n 3 sybil.out)"
tail -n 1 sybil.out
admitted=$(grep -c '^admitted' sybil.out)
[ "$admitted" -ge 64 ] && [ "$admitted" -lt $N ] || fail "$admitted of $N keys were admitted at once"
says sybil.out 'too many new workers joined at once from this address'
refused=$(grep -c 'is disconnected: too many new workers' swarm/events.log)
[ "$refused" -le 25 ] || fail "$refused lines were logged about refused strangers"
is_running || fail "the run ended"
join_begin swarm 1
join_begin swarm 2
host_ends 0 swarm
same_metrics straight swarm
same_weights straight swarm
kept=$(grep -ao 'member/[0-9a-f]*' swarm/swarm.journal | sort -u | wc -l)
[ "$kept" -eq 2 ] || fail "$kept keys are remembered, expected the two that worked"
