#!/bin/sh
# relay-run.sh - two machines that accept no connections train through a relay, to the same numbers
# as on one machine; the relay is killed in the middle and started again.
. "$(dirname "$0")/../cli/lib.sh"

make_corpus
make_run run.yaml 2 60
runs train run.yaml --out straight --set stages.count=2

# start NAME ARGS...: a strait in the background; its words in NAME.out and NAME.err.
start() {
    name=$1
    shift
    env STRAIT_CLI="$SCRATCH" "$STRAIT" "$@" >"$name.out" 2>"$name.err" </dev/null &
    pid=$!
}

# first_line FILE: what a program said first, as soon as it has.
first_line() {
    for _ in $(seq 1000); do
        [ "$(wc -l <"$1")" -ge 1 ] && head -n 1 "$1" && return
        sleep 0.02
    done
    fail "$1 stays empty"
}

start relay relay --listen 127.0.0.1:0
relay=$pid
where=$(first_line relay.out | sed 's/^relay at //')
start host host run.yaml --out swarm --set stages.count=2 --listen 127.0.0.1:0 --relay "$where" --keys keys-host
host=$pid
STARTED=$host
invite=$(first_line host.out)
start a join "$invite" --no-listen --name alice --keys keys-a --threads 1
start b join "$invite" --no-listen --name bob --keys keys-b --threads 1
wait_lines swarm 12
kill -0 "$host" 2>/dev/null || fail "was done before the relay could be killed"
kill -9 "$relay"
start relay2 relay --listen "$where"
relay=$pid
wait "$host" || { cat host.err >&2; fail "the run ended with $?"; }
same_metrics straight swarm
same_weights straight swarm
kill -INT "$relay"
wait "$relay" || fail "the relay ended with $?"
says relay2.out '^[0-9]+ connections, [0-9]+ refused, [1-9][0-9]* pairs, [1-9][0-9]{3,} bytes passed$'
none_left
