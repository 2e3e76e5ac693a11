#!/bin/sh
# dial-run.sh STRAIT HELPER - which addresses workers dial. Two workers behind one router, whose host has
# a public address, connect inside their private network. A host that lies makes a worker at home dial
# its own router, and the worker does not: not one packet arrives. The helper is the program, whose
# coordinator lies.
. "$(dirname "$0")/../cli/lib.sh"
. "$(dirname "$0")/../cli/swarm/lib.sh"
. "$(dirname "$0")/nat_lib.sh"
FALSE_PROGRAM=$HELPER
HELPER=${HELPER%/*}/cli_weights

plug host "$PUBLIC.1"
plug public "$PUBLIC.2"
home 1 2>/dev/null || { echo "skipped: cannot translate addresses"; exit 77; }
machine 1 second 3

make_corpus
make_run run.yaml 2 10
sets="--set stages.count=2"
runs train run.yaml --out straight $sets

# Both are seen at the router's address.
hosts near
worker near home1 1
worker near second 2
host_ends 0 near
same_metrics straight near
same_weights straight near
wait_all_exited

# count_dials: prints how many packets for port 8080 have reached the router from inside.
count_dials() {
    ip netns exec "$tag-router1" nft list table ip probe | sed -n 's/.*packets \([0-9]*\) .*/\1/p'
}
ip netns exec "$tag-router1" nft -f - <<END
table ip probe {
    chain arriving { type filter hook input priority 0; tcp dport 8080 counter drop; }
}
END
[ "$(count_dials)" = 0 ] || fail "the router does not count"

# One worker is at home, its neighbour elsewhere.
STRAIT=$FALSE_PROGRAM
export FALSE_HOST=dial=192.168.1.1:8080
hosts far
unset FALSE_HOST
worker far home1 3
worker far public 4
wait_for_text join-3.err 'refused to dial: it is a private address, and the coordinator is not in such a network'
wait_for_text far/events.log 'w3, stage [01]: a neighbour did not connect or answer in time'
[ "$(count_dials)" = 0 ] || fail "the worker dialled its router $(count_dials) times"

