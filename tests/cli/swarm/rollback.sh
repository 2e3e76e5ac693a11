#!/bin/sh
# rollback.sh - the metastore's journal is replaced by an older copy while workers live, which have seen
# later generations than it knows. The run goes on with them, to the same losses and weights.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/lib.sh"

make_corpus
make_run run.yaml 2 60
runs train run.yaml --out straight --set stages.count=2

host_begin swarm run.yaml --set stages.count=2 --set link.emulate.delay=5ms
join_begin swarm 1
join_begin swarm 2
wait_steps swarm 3
host_kill
cp swarm/swarm.journal backup # workers are in generation 1
for round in 1 2 3; do
    host_begin swarm run.yaml --set stages.count=2 --set link.emulate.delay=5ms
    wait_for_text swarm/events.log "generation $((1 + round)): all stages ready"
    host_kill
done
cp backup swarm/swarm.journal
host_begin swarm run.yaml --set stages.count=2
wait_for_text swarm/events.log 'generation [5-9]: all stages ready'
host_ends 0 rollback
same_metrics straight swarm
same_weights straight swarm
