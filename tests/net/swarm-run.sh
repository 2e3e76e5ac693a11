#!/bin/sh
# swarm-run.sh STRAIT HELPER WAN - three machines, as network namespaces with addresses of their own,
# each behind a line of 80 Mb/s and 30 ms: one hosts, two join by the pasted invite and train to the
# end; then lines are cut, shortly and for long. Needs root, ip and TUN; says so otherwise.
. "$(dirname "$0")/../cli/lib.sh"
. "$(dirname "$0")/../cli/swarm_lib.sh"
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
none_left

# cut I SECONDS: the line of machine I carries nothing for a while, and nobody is told.
cut_line() {
    kill -STOP "$(cat "wan-$1.pid")"
    sleep "$2"
    kill -CONT "$(cat "wan-$1.pid")"
}

swarm_begin cut 1 2
wait_steps cut 5
cut_line 1 2
wait_steps cut 12
cut_line 2 12
wait_steps cut 20
cut_line 0 9
host_ends 0 "lines that are cut"
same_metrics straight cut
same_weights straight cut
says cut/events.log 'is lost' 'is back|joined'
none_left
grep -c 'all stages stand' cut/events.log | sed 's/^/epochs: /'
