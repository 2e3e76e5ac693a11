#!/bin/sh
# audit.sh - spares compute intervals of stages again (host --audit-share). Owners that change a weight or a
# report slightly, so that nothing else notices, must be out, and the run must end with the losses and weights
# of an honest one. Spares that accuse everyone, or compute nothing, must be out too. No honest worker is banned.
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../lib.sh"
LIAR=$(dirname "$HELPER")/../liar/cli_liar
FALSE=$3

make_corpus
make_run run.yaml 3 24
sets="--set stages.count=3 --set train.save_every=8 --set train.keep_checkpoints=10"
runs train run.yaml --out straight $sets

# begin FOLDER ARGS...: starts a host that audits everything.
begin() {
    folder=$1
    shift
    host_begin "$folder" run.yaml $sets --rebalance 0 --audit-share 1 "$@"
}

# join_false FOLDER N WHAT: starts a worker that computes something else.
join_false() {
    env STRAIT_CLI="$SCRATCH" FALSE_WORKER="$3" "$FALSE" join "$(cat "$1.invite")" --keys "keys-$1-false-$2" \
        --name "false-$2" --listen 127.0.0.1:0 --threads 1 >/dev/null 2>>"$1.false" </dev/null &
    wait_for_text "$1/events.log" "false-$2 .*joined"
}

# join_honest FOLDER N...: starts honest workers one by one, so that the first get the stages.
join_honest() {
    where=$1
    shift
    for i in "$@"; do
        join_begin "$where" "$where-$i"
        wait_for_text "$where/events.log" "w$where-$i .*joined"
    done
}

# same_as_honest FOLDER: checks the end of a run.
same_as_honest() {
    same_metrics straight "$1"
    same_weights straight "$1"
    ! grep -qE 'worker w.*(banned|violation)' "$1/events.log" || fail "$1: an honest worker was banned"
}

# A share is a part of the whole.
for share in 2 -0.1; do
    refuses 2 "audit-share $share: expected 0 to 1" host run.yaml --out refused --listen 127.0.0.1:0 --audit-share $share
done
refuses 2 'train.outer: audits .* know no averages' host run.yaml --out refused --listen 127.0.0.1:0 --public \
    --set stages.replicas=2 --set train.outer.sync_every=2

# Nobody lies. The key of the draw is the host's alone.
begin honest
join_honest honest 1 2 3 4 5
host_ends 0 honest
runs watch honest --once
says "$OUT" '^  audits: [1-9][0-9]* intervals right, 0 wrong \(their workers are banned\), [0-9]+ unsettled$'
jq -e '.audits.approved > 0 and .audits.convicted == 0' honest/swarm.json >/dev/null || fail "swarm.json: $(cat honest/swarm.json)"
same_as_honest honest
says honest/events.log 'audit of stage .*: the result is right'
! grep -q 'contradict' honest/events.log || fail "an honest result was contradicted"
[ "$(stat -c %a honest/audit.key)" = 600 ] || fail "others can read the key of audits"
says honest/events.log 'found with probability 1'

# An owner dies: others take part in audits of steps that are computed again, and nobody is accused.
begin killed
join_begin killed killed-1 --fault applied:0:12
wait_for_text killed/events.log 'wkilled-1 .*joined'
join_honest killed 2 3 4 5
host_ends 0 killed
same_as_honest killed
! grep -qE 'contradict|violation|did not commit' killed/events.log || fail "killed: an honest worker is accused"

# lie FOLDER WHAT: the owner of the second stage lies once; the others must notice.
lie() {
    begin "$1"
    join_honest "$1" 1
    join_false "$1" 1 "$2"
    join_honest "$1" 2 3 4 5
    host_ends 0 "$1"
    says "$1.false" "false worker: $2"
}

# An owner changes one weight by a thousandth after step 10, or reports a square that is a thousandth too
# large. On a busy machine the spares may be so far behind that this one interval is not audited.
for what in weights:10 squares:10; do
    for again in 1 2 3; do
        name=$(echo $what | tr : -)-$again
        lie "$name" $what
        ! grep -q 'audit.* dropped' "$name/events.log" || grep -q contradict "$name/events.log" || continue
        break
    done
    same_as_honest "$name"
    says "$name/events.log" "false-1 gave a result that two others contradict"
    says "$name/events.log" 'worker false-1 .*an audit found it at fault; banned'
    says "$name/events.log" 'returning to step [0-9]* or before'
done

# All threads have run. ThreadSanitizer takes minutes for what follows.
[ "${SANITIZED:-}" != thread ] || exit 0

# What two neighbours exchange is stated by both in each step, whatever the draw says. A sender may state the right
# bytes and send others, a receiver may deny what it got: a third worker tells who of the two lied, nobody is banned.
# contradicts NAME WHAT: the owner of the second stage lies in step 20 to or about its neighbours; sets $name. On a
# busy machine the spares may come later than that, or the false worker may compute step 20 as a spare, where nobody
# else heard it: then it is tried again.
contradicts() {
    for again in 1 2 3; do
        name=$1-$again
        begin "$name"
        join_honest "$name" 1
        join_false "$name" 1 "$2"
        for i in 2 3 4 5; do join_begin "$name" "$name-$i"; done
        host_ends 0 "$name"
        same_as_honest "$name"
        says "$name.false" "false worker: $2"
        grep -q 'step 20: .* contradict each other about what they exchanged' "$name/events.log" || continue
        ! grep -E 'banned|violation|returning' "$name/events.log" >&2 || fail "$name: a worker was accused"
        grep -q 'another worker must join' "$name/events.log" || break
    done
    says "$name/events.log" 'step 20: .* contradict each other about what they exchanged'
}

contradicts sender wire:20
says "$name/events.log" 'worker false-1 .*two workers contradict it'
contradicts receiver received:20

# Devices that round differently: snapshots are compared with a tolerance. One weight may hide in it; a
# twentieth of a tensor may not.
begin rounding
export FALSE_DEVICE=1
join_false rounding 1 none
join_false rounding 2 tensor:10
for i in 3 4 5 6; do join_false rounding $i none; done
unset FALSE_DEVICE
host_ends 0 rounding
same_as_honest rounding
says rounding/events.log 'audit of stage .*: 0 from the result of the owner'
says rounding/events.log 'worker false-2 .*an audit found it at fault; banned'
! grep -qE 'worker false-[13456] .*(banned|violation)' rounding/events.log || fail "rounding: an honest worker was banned"

# A spare accuses everyone, another computes nothing: nobody else pays for it, and the run does not return.
begin spares
join_honest spares 1 2 3
join_false spares 1 idle
env STRAIT_CLI="$SCRATCH" "$LIAR" --lie task_reply.audit_end.snapshot=random join "$(cat spares.invite)" \
    --keys keys-accuser --name accuser --listen 127.0.0.1:0 --threads 1 >>spares.false 2>&1 </dev/null &
join_honest spares 4 5
host_ends 0 spares
same_as_honest spares
says spares/events.log 'worker false-1 .*an audit found it at fault; banned'
says spares/events.log 'worker accuser .*an audit found it at fault; banned'
! grep -q 'returning' spares/events.log || fail "the run returned although no owner lied"

# An owner hides that it has snapshots. No interval after them would have a beginning, and no stage be audited.
begin hidden
env STRAIT_CLI="$SCRATCH" "$LIAR" --lie heartbeat.inventory.own.n=0 join "$(cat hidden.invite)" --keys keys-hider \
    --name hider --listen 127.0.0.1:0 --threads 1 >>hidden.false 2>&1 </dev/null &
wait_for_text hidden/events.log 'hider .*joined'
join_honest hidden 1 2 3 4 5
host_ends 0 hidden
same_as_honest hidden
says hidden/events.log 'hider, stage 0: did not report the snapshot that it took'
says hidden/events.log 'worker hider .*violation 2 of 2; banned'
