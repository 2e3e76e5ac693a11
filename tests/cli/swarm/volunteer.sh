#!/bin/sh
# volunteer.sh - what the person who lends a machine sees: what the run is and needs, how far it is, lost
# connections in words, a summary; and workers in the background, asked and stopped by other processes.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/lib.sh"

make_corpus
make_run run.yaml 2 60
slow="--set stages.count=2 --set link.emulate.delay=25ms --set name=harbour"
long="--set train.steps=600" # more than this script needs for what happens meanwhile

# Worker 1 in the foreground, worker 2 in the background, a third as a spare.
host_begin lent run.yaml $slow $long
invite=$(cat lent.invite)
join_begin lent 1 --device auto
strait join "$invite" --background --keys keys-2 --name w2 --listen 127.0.0.1:0 --threads 1 >begun 2>"$ERR" ||
    fail "join --background: exit code $?"
says begun '^worker 1 runs in the background as process [0-9]+; its log is keys-2/node.log' 'strait join --stop'
wait_for_text join-1.err '^device: cpu \(device cuda: (no NVIDIA driver|this build has no CUDA support)|^device: cuda'
for log in join-1.err keys-2/node.log; do
    wait_for_text "$log" '^this run: harbour, 0[.][0-9]+M parameters, 2 layers, width 32, needs [0-9.]+ MiB and about [0-9.e+]+ MB/h, stage [01] of 2'
done
join_begin lent 3
wait_for_text join-3.err '^this run: harbour, .*; a stage needs [0-9.]+ MiB or more; no stage yet, waiting as a spare'
wait_steps lent 4

# The worker in the background says what it does. Its figures are those of the run.
has_contributed() {
    strait join --status --keys keys-2 >"$OUT" 2>"$ERR" || fail "join --status: exit code $?"
    grep -qE ' [1-9][0-9.k]* tokens contributed' "$OUT"
}
await "the worker has contributed" has_contributed
says "$OUT" "^worker 1, process $(sed -n 's/.*as process \([0-9]*\);.*/\1/p' begun): stage [01] of 2 of run harbour \(.*\); step [1-9][0-9]*/600, loss [0-9.]+, " \
    'tokens contributed, sent [0-9.]+ MB, received [0-9.]+ MB, memory [0-9.]+ MiB$'
[ "$(stat -c %a keys-2/node.status keys-2/node.log | sort -u)" = 600 ] || fail "others can read the status"

# Stopping it hands its stage over to the spare: the run goes on, and the worker says what it gave. Another process is
# never signalled, even where the status has its number, as one does that an earlier worker left.
worker=$(sed -n 's/.*as process \([0-9]*\);.*/\1/p' begun)
sleep 300 &
bystander=$!
kill -STOP "$worker"
sed -i "s/\"pid\":$worker/\"pid\":$bystander/" keys-2/node.status
strait join --stop --keys keys-2 >"$OUT" 2>"$ERR" &
stopping=$!
sleep 0.3
kill -CONT "$worker"
wait $stopping || fail "join --stop: exit code $?"
grep -q '^State:.*sleeping' "/proc/$bystander/status" || fail "join --stop ended another process"
kill "$bystander"
says "$OUT" '^worker 1, process [0-9]+, has left$'
says keys-2/node.log '^leaving: handing the stage over first' \
    '^summary: contributed [0-9.k]+ tokens in [0-9]+ steps? to run harbour in [0-9]+s; audited 0 intervals; sent .* MB, received .* MB; lost the connection 0 times'
! grep -q 'lost the connection to the coordinator' keys-2/node.log || fail "a worker that left says that it lost the coordinator"
refuses 4 'no worker runs with the keys in keys-2' join --status --keys keys-2
runs join --stop --keys keys-2
says "$OUT" 'no worker runs with the keys in keys-2'
wait_for_text join-3.err '^this run: harbour, .*, stage [01] of 2'

# A coordinator that is gone for a while: said in words, and counted in the summary.
host_kill
wait_for_text join-1.err '^lost the connection to the coordinator \(.*\): trying again for up to 600 s; this machine continues once'
host_begin lent run.yaml $slow $long --set link.emulate.delay=0ms # the rest needs no slow link
wait_for_text join-1.err '^connected again after [0-9]+ s: asking to join'
host_ends 0 lent
for i in 1 3; do wait_for_text "join-$i.err" '^summary: contributed .* lost the connection 1 time$'; done
wait_all_exited

# On a terminal one line is redrawn, with step, loss, remaining time and what the machine does.
if command -v script >/dev/null; then
    host_begin shown run.yaml $slow
    join_begin shown 1
    command="env STRAIT_CLI=$SCRATCH $STRAIT join $(cat shown.invite) --keys keys-4 --listen 127.0.0.1:0 --threads 1"
    (stty cols 200 2>/dev/null; exec script -qec "stty cols 200; $command" shown.tty >/dev/null 2>&1 </dev/null) &
    host_ends 0 shown
    wait_all_exited
    tr '\r' '\n' <shown.tty >lines
    says lines 'step [1-9][0-9]*/60  loss [0-9.]+  left [0-9]+s  stage [01] of 2  [0-9.k]+ tokens contributed  sent [0-9.]+ MB  received [0-9.]+ MB  [0-9]+ MB/h  memory [0-9.]+ MiB'
    [ "$(grep -c 'tokens contributed' lines)" -ge 2 ] || fail "the line is not redrawn"
fi

# Errors before the worker runs in the background are the command's own, with their exit codes.
refuses 2 'invite' join nonsense --background --keys keys-5
refuses 3 'keys DIR: .*cannot' join "$invite" --background --keys /proc/nothing
refuses 2 'use --device cpu|device' join "$invite" --keys keys-5 --device cuda --background --give-up 1
[ ! -e keys-5/node.status ] || refuses 4 'no worker runs' join --status --keys keys-5

# Outside its hours the worker waits in the background, not the command that starts it.
from=$((($(date +%-H) + 5) % 24))
timeout $PATIENCE env STRAIT_CLI="$SCRATCH" "$STRAIT" join "$invite" --background --keys keys-6 --listen 127.0.0.1:0 \
    --hours "$from-$(((from + 2) % 24))" >"$OUT" 2>"$ERR" || fail "join --background --hours: exit code $?"
says "$OUT" '^worker 1 runs in the background as process [0-9]+'
says keys-6/node.log "^outside --hours $from-"
runs join --stop --keys keys-6
says "$OUT" '^worker 1, process [0-9]+, has left$'
wait_all_exited
