#!/bin/sh
# etcd-run.sh - the coordinator's facts live in three etcd members, and another coordinator stands
# by. The active one is killed, then an etcd member, then all of them: each time the run goes on, at
# the latest when etcd is back, and in the end it has the same numbers as one that nothing happened to.
[ -x /usr/bin/etcd ] || { echo "skipped: no /usr/bin/etcd here (Debian package etcd-server)"; exit 77; }
. "$(dirname "$0")/../../cli/lib.sh"

make_corpus
make_run run.yaml 2 400
runs train run.yaml --out straight --set stages.count=2

# Ports below those that the system gives out, from this process's number.
base=$((20000 + $$ % 1000 * 8))
client() { echo "http://127.0.0.1:$((base + 2 * $1))"; }
peer() { echo "http://127.0.0.1:$((base + 2 * $1 + 1))"; }

start_member() {
    env STRAIT_CLI="$SCRATCH" ETCD_UNSUPPORTED_ARCH=arm64 /usr/bin/etcd --name m$1 --data-dir m$1 \
        --listen-client-urls "$(client $1)" --advertise-client-urls "$(client $1)" \
        --listen-peer-urls "$(peer $1)" --initial-advertise-peer-urls "$(peer $1)" \
        --initial-cluster "m0=$(peer 0),m1=$(peer 1),m2=$(peer 2)" >>m$1.log 2>&1 </dev/null &
    eval "member$1=$!"
}

start_members() {
    for i in 0 1 2; do start_member $i; done
}

# start NAME ARGS...: a strait in the background; its words in NAME.out and NAME.err.
start() {
    name=$1
    shift
    env STRAIT_CLI="$SCRATCH" "$STRAIT" "$@" >"$name.out" 2>"$name.err" </dev/null &
    pid=$!
}

# until_says FILE WORDS: at the latest after a minute.
until_says() {
    for _ in $(seq 600); do
        grep -qsE -- "$2" "$1" && return
        sleep 0.1
    done
    OUT=$1
    fail "$1 does not say \"$2\""
}

# Lines of metrics so far.
n_lines() {
    [ -f swarm/metrics.jsonl ] && wc -l <swarm/metrics.jsonl || echo 0
}

# coordinate NAME: a coordinator, of which only one leads.
port=$((base + 7))
coordinate() {
    start "$1" host run.yaml --out swarm --set stages.count=2 --listen 127.0.0.1:$port --keys keys-host \
        --store "etcd:$(client 0),$(client 1),$(client 2)"
}

start_members
coordinate first
first=$pid
until_says first.out '^strait'
invite=$(head -n 1 first.out)
coordinate second
second=$pid
until_says second.err 'standing by'
start a join "$invite" --name alice --keys keys-a --threads 1 --listen 127.0.0.1:0
start b join "$invite" --name bob --keys keys-b --threads 1 --listen 127.0.0.1:0

STARTED=$second
wait_lines swarm 15
kill -9 "$first" || fail "was done before the coordinator could be killed"
before=$(n_lines)
began=$(date +%s%N)
wait_lines swarm $((before + 2))
echo "the standby made progress $((($(date +%s%N) - began) / 1000000)) ms after the kill"

# One member dies, and the one that leads the others may be it: nothing changes.
kill -9 "$member1"
before=$(n_lines)
wait_lines swarm $((before + 5))
kill -0 "$second" || fail "did not survive the loss of one etcd member"
start_member 1

# All members die. The coordinator ends when its lease does, and says why; the next one stands by.
coordinate third
third=$pid
until_says third.err 'standing by'
kill -0 "$second" || fail "was done before etcd could be killed"
kill -9 "$member0" "$member1" "$member2"
began=$(date +%s)
wait "$second" && fail "did not notice that etcd is gone"
says second.err 'strait: .*none of 3 members answered within 5000 ms'
echo "without etcd the coordinator stopped after $(($(date +%s) - began)) s"
[ $(($(date +%s) - began)) -le 20 ] || fail "took too long to notice"
start_members
wait "$third" || { tail -n 20 third.err >&2; fail "the run ended with $?"; }
same_metrics straight swarm
same_weights straight swarm
