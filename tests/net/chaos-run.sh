#!/bin/sh
# chaos-run.sh STRAIT HELPER WAN - a swarm on four machines (machines.sh), one of them the
# coordinator's, under random network faults drawn from a seed: losses and weights must be the same as
# without faults. tests/cli/swarm/chaos.sh covers all other faults. Needs root, ip and TUN; skips otherwise.
#
#   SEED=1 FAULTS=5 LONGEST=8    LONGEST: longest fault in seconds
. "$(dirname "$0")/../cli/lib.sh"
. "$(dirname "$0")/../cli/swarm/lib.sh"
. "$(dirname "$0")/machines.sh"
WAN=$3
SEED=${SEED:-1}
FAULTS=${FAULTS:-5}
LONGEST=${LONGEST:-8}
RUN=chaos
draw_from "$SEED"

# wait_out KIND MS: waits until the run makes progress again and the fault is over.
wait_out() {
    wait_for_recovery $RUN "$1" "$began" "$before" || return
    left=$((began + $2 - $(now_ms)))
    [ $left -le 0 ] || sleep_ms $left
}

# The link drops everything in both directions.
fault_silent() {
    pid=$(cat "wan-$1.pid")
    kill -STOP "$pid"
    (sleep_ms "$2"; kill -CONT "$pid") &
    repair=$!
    wait_out silent "$2"
    wait $repair
}

# The machine's interface is down: its sends fail at once.
fault_down() {
    ip -n "$tag-m$1" link set wan0 down
    (sleep_ms "$2"; ip -n "$tag-m$1" link set wan0 up; ip -n "$tag-m$1" route add default via "10.10$1.0.2") &
    repair=$!
    wait_out down "$2"
    wait $repair
}

# The machine can send but receives nothing.
fault_receive_nothing() {
    ip -n "$tag-g$1" route add blackhole "10.10$1.0.1/32"
    (sleep_ms "$2"; ip -n "$tag-g$1" route del blackhole "10.10$1.0.1/32") &
    repair=$!
    wait_out receive_nothing "$2"
    wait $repair
}

# The machine receives but what it sends is dropped.
fault_send_nothing() {
    routes_to_others "$1" blackhole
    (sleep_ms "$2"; routes_to_others "$1" via) &
    repair=$!
    wait_out send_nothing "$2"
    wait $repair
}

# The link alternates between working and not, a quarter of a second each.
fault_slow() {
    pid=$(cat "wan-$1.pid")
    (for _ in $(seq $(($2 / 500 + 1))); do kill -STOP "$pid"; sleep_ms 250; kill -CONT "$pid"; sleep_ms 250; done) &
    repair=$!
    wait_out slow "$2"
    wait $repair
}

machines_begin 4
make_corpus
: >times

# The plan: the kinds of faults in turn, starting at a random one, with random machines and durations.
draw 5
first=$drawn
for n in $(seq "$FAULTS"); do
    kind=$(echo "silent down receive_nothing send_nothing slow" | cut -d ' ' -f $(((first + n) % 5 + 1)))
    draw 4
    machine=$drawn
    draw 1001
    ms=$(awk "BEGIN { print int(1000 * $LONGEST ^ ($drawn / 1000)) }")
    echo "$kind $machine $ms"
done >plan
total=$(awk '{ s += 7 + $3 / 450 } END { print int(s) + 10 }' plan)
make_run run.yaml 2 "$total"
runs train run.yaml --out straight --set stages.count=2
swarm_begin $RUN 1 2 3
n=0
while read -r kind machine ms <&5; do
    wait_until progress has_reached_step $RUN $(($(steps_in $RUN) + 2)) || break
    n=$((n + 1))
    fault="fault $n, step $(steps_in $RUN) of $total: $kind, machine $machine, $ms ms"
    echo "$fault"
    before=$(steps_in $RUN)
    began=$(now_ms)
    "fault_$kind" "$machine" "$ms" 5<&-
done 5<plan
[ $n -gt $((FAULTS / 2)) ] || fail "the run ended after $n faults, too few"
host_ends 0 "after network faults"
same_metrics straight $RUN
same_weights straight $RUN
wait_all_exited
echo "seed $SEED: $n faults, $(grep -c 'all stages ready' $RUN/events.log) generations, the same bits"
print_times
