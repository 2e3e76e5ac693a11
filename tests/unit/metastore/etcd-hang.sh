#!/bin/sh
# etcd-hang.sh - the leading coordinator hangs (SIGSTOP) and keeps its locks and its port. The standby takes
# over the run and its folder; the old leader, when it runs again, ends before it writes anything.
. "$(dirname "$0")/../../cli/lib.sh"
. "$(dirname "$0")/../../cli/swarm_lib.sh"
. "$(dirname "$0")/etcd_lib.sh"

make_corpus
make_run run.yaml 2 120
sets="--set stages.count=2 --set link.emulate.delay=10ms --set train.save_every=10"
runs train run.yaml --out straight $sets

start_etcd
for name in first second; do choose_port && eval "$name=$port"; done

# Each coordinator has a port of its own, and the invite names both.
echo $first >swarm.port
both="--store $store --announce 127.0.0.1:$first,127.0.0.1:$second"
host_begin swarm run.yaml $sets $both
old=$HOST
for i in 1 2; do join_begin swarm $i; done
env STRAIT_CLI="$SCRATCH" "$STRAIT" host run.yaml --out swarm $sets $both --listen "127.0.0.1:$second" \
    --keys keys-host >second.out 2>second.err </dev/null &
standby=$!
wait_for_text second.err 'standing by'
wait_steps swarm 15
is_running || fail "was done before the coordinator could be stopped"

kill -STOP "$old"
HOST=$standby
HOST_LOG=second.err
wait_for_text second.err 'took over swarm from a coordinator that hangs'
steps=$(steps_in swarm)
wait_steps swarm $((steps + steps / 5 + 10)) # with the lines of validations
is_running || fail "the standby ended"

# The old leader wakes up in the middle of the run.
[ "$(ls -d swarm/.term-* | wc -l)" -eq 1 ] || fail "two coordinators own the folder: $(ls -d swarm/.term-*)"
kill -CONT "$old"
wait "$old" 2>/dev/null
code=$?
[ "$code" -eq 4 ] || { tail -n 5 "$SCRATCH/host.err" >&2; fail "the old leader ended with $code, expected 4"; }
tail -n 1 "$SCRATCH/host.err" | grep -qE '^strait: .*(swarm: another coordinator \(term [0-9]+\) has taken over this run|is led by)' ||
    fail "the old leader does not say why it ended: $(tail -n 1 "$SCRATCH/host.err")"
host_ends 0 "after the old leader was replaced"
same_metrics straight swarm
same_weights straight swarm
leftover=$(find swarm -name '*.tmp' -o -name '.term-*')
[ -z "$leftover" ] || fail "files are left: $leftover"
