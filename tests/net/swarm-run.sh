#!/bin/sh
# swarm-run.sh STRAIT HELPER WAN - three machines (machines.sh), each behind a link of 80 Mb/s and
# 30 ms: one hosts, two join by its invite and train to the end; then again while links are interrupted
# for short and long times. Needs root, ip and TUN; skips otherwise.
. "$(dirname "$0")/../cli/lib.sh"
. "$(dirname "$0")/../cli/swarm/lib.sh"
. "$(dirname "$0")/machines.sh"
WAN=$3
machines_begin 3

make_corpus
make_run run.yaml 2 40
runs train run.yaml --out straight --set stages.count=2

swarm_begin plain 1 2
host_ends 0 "three machines"
same_metrics straight plain
same_weights straight plain
wait_all_exited

# interrupt I SECONDS: the link of machine I drops everything for a while.
interrupt() {
    kill -STOP "$(cat "wan-$1.pid")"
    sleep "$2"
    kill -CONT "$(cat "wan-$1.pid")"
}

swarm_begin interrupted 1 2
wait_steps interrupted 5
interrupt 1 2
wait_steps interrupted 12
interrupt 2 12
wait_steps interrupted 20
interrupt 0 9
host_ends 0 "interrupted links"
same_metrics straight interrupted
same_weights straight interrupted
says interrupted/events.log 'connection lost' 'reconnected|joined'
wait_all_exited
grep -c 'all stages ready' interrupted/events.log | sed 's/^/generations: /'
