#!/bin/sh
# relay-run.sh - two workers that accept no connections train through a relay; losses and weights must
# be the same as on one machine. The relay is killed and restarted in the middle.
. "$(dirname "$0")/../cli/lib.sh"
. "$(dirname "$0")/../cli/swarm/lib.sh"

make_corpus
make_run run.yaml 2 60
sets="--set stages.count=2 --set link.emulate.delay=25ms"
runs train run.yaml --out straight $sets

# relay_begin ADDRESS: starts a relay and waits until it prints its address, stored in $where.
relay_begin() {
    : >relay.out
    env STRAIT_CLI="$SCRATCH" "$STRAIT" relay --listen "$1" >relay.out 2>relay.err </dev/null &
    relay=$!
    wait_for_text relay.out '^relay at '
    where=$(sed -n 's/^relay at //p' relay.out)
}

choose_port
relay_begin "127.0.0.1:$port"
host_begin swarm run.yaml $sets --relay "$where"
for i in 1 2; do join_begin swarm $i --no-listen; done
wait_steps swarm 12
is_running || fail "the run ended before the relay could be killed"
kill -9 "$relay"
wait "$relay" 2>/dev/null # afterwards its port is free
relay_begin "$where"
host_ends 0 "through a relay"
same_metrics straight swarm
same_weights straight swarm
kill -INT "$relay"
wait "$relay" || fail "the relay ended with $?"
says relay.out '^[0-9]+ connections, [0-9]+ refused, [1-9][0-9]* pairs, [1-9][0-9]{3,} bytes forwarded$'
wait_all_exited
