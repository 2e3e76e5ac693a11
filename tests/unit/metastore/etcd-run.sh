#!/bin/sh
# etcd-run.sh - a run whose metastore is an etcd cluster of three members, with a standby coordinator.
# The host starts before etcd. The leading coordinator is killed, then one etcd member, then all of them, twice.
# Each time the run continues, at the latest when etcd is back, and it ends with the losses and weights of an
# undisturbed run.
[ -x /usr/bin/etcd ] || { echo "skipped: no /usr/bin/etcd here (Debian package etcd-server)"; exit 77; }
. "$(dirname "$0")/../../cli/lib.sh"
. "$(dirname "$0")/../../cli/swarm/lib.sh"

make_corpus
make_run run.yaml 2 300
sets="--set stages.count=2 --set link.emulate.delay=10ms"
runs train run.yaml --out straight $sets

ports=
for _ in 1 2 3 4 5 6; do
    choose_port
    ports="$ports $port"
done
client() { echo "http://127.0.0.1:$(echo $ports | cut -d ' ' -f $(($1 + 1)))"; }
peer() { echo "http://127.0.0.1:$(echo $ports | cut -d ' ' -f $(($1 + 4)))"; }
store="etcd:$(client 0),$(client 1),$(client 2)"

start_member() {
    env STRAIT_CLI="$SCRATCH" ETCD_UNSUPPORTED_ARCH=arm64 /usr/bin/etcd --name m$1 --data-dir m$1 \
        --listen-client-urls "$(client $1)" --advertise-client-urls "$(client $1)" \
        --listen-peer-urls "$(peer $1)" --initial-advertise-peer-urls "$(peer $1)" \
        --initial-cluster "m0=$(peer 0),m1=$(peer 1),m2=$(peer 2)" >>m$1.log 2>&1 </dev/null &
    eval "member$1=$!"
}

# stand_by NAME: starts another coordinator of the same run, process $standby, log NAME.err.
stand_by() {
    env STRAIT_CLI="$SCRATCH" "$STRAIT" host run.yaml --out swarm $sets --listen 127.0.0.1:0 \
        --keys keys-host --store "$store" >"$1.out" 2>"$1.err" </dev/null &
    standby=$!
    wait_for_text "$1.err" 'standing by'
}

# goes_on N TEXT: waits until the run has made N more steps.
goes_on() {
    wait_steps swarm $(($(wc -l <swarm/metrics.jsonl) + $1))
    is_running || fail "$2: the coordinator has ended"
}

# The coordinator starts before etcd: it reports repeatedly what it cannot reach, and continues when it can.
host_start swarm run.yaml $sets --store "$store"
wait_for_text "$HOST_LOG" "metastore $store: unreachable, trying for 600 s: .*none of 3 members answered" \
    'still unreachable after [1-9][0-9]* s'
[ ! -s swarm.invite ] || fail "an invite was printed although nobody leads the run"
for i in 0 1 2; do start_member $i; done
wait_for_invite
says "$HOST_LOG" '^the metastore is reachable'
for i in 1 2; do join_begin swarm $i; done
stand_by second
wait_steps swarm 15

is_running || fail "was done before the coordinator could be killed"
host_kill
began=$(date +%s%N)
HOST=$standby
HOST_LOG=second.err
goes_on 2 "after the death of the coordinator"
echo "the standby made progress $((($(date +%s%N) - began) / 1000000)) ms after the kill"

# One member dies, perhaps the raft leader: the run continues.
kill -9 "$member1"
goes_on 5 "after the death of an etcd member"
start_member 1

# All members die: the run pauses, says so, and continues when they are back.
kill -9 "$member0" "$member1" "$member2"
paused() {
    wait_for_text "$HOST_LOG" "$1"
    is_running || fail "the coordinator ends without etcd"
}
paused 'paused until the metastore is back, for 600 s at most: .*none of 3 members answered'
wait_for_text swarm/swarm.json '"phase": *"paused"' # written after the log line
lines=$(wc -l <swarm/metrics.jsonl)
lost=$(cat join-*.err | grep -c 'lost the connection to the coordinator')
sleep 8 # longer than the timeout of a silent link
[ "$(wc -l <swarm/metrics.jsonl)" -eq "$lines" ] || fail "steps were made while the metastore was unreachable"
for i in 0 1 2; do start_member $i; done
goes_on 2 "after etcd came back"
says swarm/events.log 'continuing: the metastore is back'
[ "$(cat join-*.err | grep -c 'lost the connection to the coordinator')" -eq "$lost" ] ||
    fail "workers lost a coordinator that only waited for etcd"
kill -INT "$HOST"
host_ends 130 "asked to stop"

# etcd is away for longer than --store-wait: the host ends, and continues when it is started again.
HOST_LOG=third.err
host_begin swarm run.yaml $sets --store "$store" --store-wait 1
goes_on 2 "started again"
kill -9 "$member0" "$member1" "$member2"
host_ends 4 "without etcd for too long"
says third.err 'strait: .*the metastore was unreachable for .* start the host again'
for i in 0 1 2; do start_member $i; done
HOST_LOG=fourth.err
host_begin swarm run.yaml $sets --store "$store"
host_ends 0 "after etcd came back"
same_metrics straight swarm
same_weights straight swarm
