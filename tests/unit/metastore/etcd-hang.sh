#!/bin/sh
# etcd-hang.sh - the leading coordinator hangs (SIGSTOP) and keeps its locks and its port. The standby takes
# over the run and its folder; the old leader, when it runs again, ends before it writes anything.
. "$(dirname "$0")/../../cli/lib.sh"
. "$(dirname "$0")/../../cli/swarm/lib.sh"
. "$(dirname "$0")/etcd_lib.sh"

make_corpus
make_run run.yaml 2 200
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
wait_steps swarm 5

# stand_by NAME PORT: starts another coordinator of the run, process $standby, log NAME.err.
stand_by() {
    env STRAIT_CLI="$SCRATCH" "$STRAIT" host run.yaml --out swarm $sets $both --listen "127.0.0.1:$2" \
        --keys keys-host >"$1.out" 2>"$1.err" </dev/null &
    standby=$!
    wait_for_text "$1.err" 'standing by'
}

# A standby that needs the port of the process that hangs cannot lead: it says so, and leaves the folder to
# the old leader, which continues when it wakes up.
stand_by portless "$first"
kill -STOP "$old"
wait "$standby"
code=$?
kill -CONT "$old"
[ "$code" -ne 0 ] || fail "a standby without a port took over"
says portless.err '^strait: .*give this one a port of its own .*address already in use'
steps=$(wc -l <swarm/metrics.jsonl)
wait_steps swarm $((steps + 5))
is_running || fail "the old leader ended although nobody took over: $(tail -n 1 "$HOST_LOG")"

stand_by second "$second"
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
[ -S swarm/operator.sock ] || fail "the old leader removed the socket of the new one"
host_ends 0 "after the old leader was replaced"
same_metrics straight swarm
same_weights straight swarm
leftover=$(find swarm -name '*.tmp' -o -name '.term-*')
[ -z "$leftover" ] || fail "files are left: $leftover"
