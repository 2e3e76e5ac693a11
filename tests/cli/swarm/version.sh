#!/bin/sh
# version.sh - a worker and a host of releases with different protocol versions: both say why they cannot
# work together, and the host goes on with its other workers.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/lib.sh"
OTHER=$3

make_corpus
make_run run.yaml 2 40
sets="--set stages.count=2 --set link.emulate.delay=10ms"
runs train run.yaml --out straight $sets

# with_other COMMAND...: runs a command of swarm/lib.sh with the other program.
with_other() {
    mine=$STRAIT
    STRAIT=$OTHER
    "$@"
    STRAIT=$mine
}

# is_told N LOG: worker N ended with 4 and named both versions, and so did the host in LOG.
is_told() {
    wait "$(pid_of_join "$1")"
    code=$?
    [ "$code" -eq 4 ] || fail "worker $1 of another version ended with $code, expected 4"
    both='the peer uses protocol version [0-9]+, this program version [0-9]+: install the same release'
    tail -n 1 "join-$1.err" | grep -qE "^strait: coordinator at .*$both" ||
        fail "worker $1 does not name the versions: $(tail -n 1 "join-$1.err")"
    wait_for_text "$2" "^refused a connection: .*$both"
    theirs=$(sed -nE 's/.*the peer uses protocol version ([0-9]+).*/\1/p' "$2" | head -n 1)
    says "join-$1.err" "this program version $theirs:"
}

host_begin swarm run.yaml $sets
for i in 1 2; do join_begin swarm $i; done
wait_steps swarm 5
with_other join_begin swarm 3
is_told 3 "$HOST_LOG"
host_ends 0 "after a worker of another version was refused"
same_metrics straight swarm
same_weights straight swarm
grep -qE 'lost|disconnected|banned' swarm/events.log && fail "a worker of another version disturbed the run"

# The other way round; the other program works with its own kind.
HOST_LOG=other.err
with_other host_begin other run.yaml $sets
join_begin other 4
is_told 4 other.err
for i in 5 6; do with_other join_begin other $i; done
host_ends 0 "with workers of its own version"
same_metrics straight other
wait_all_exited
