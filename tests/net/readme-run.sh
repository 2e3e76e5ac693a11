#!/bin/sh
# readme-run.sh STRAIT HELPER WAN - runs the commands of "Two machines in two minutes" in README.md as
# they are written, on two machines (machines.sh) that have nothing but what the text provides. Only
# the placeholder "strait1:AQ..." is replaced by the invite, and the run has fewer steps. Needs root,
# ip and TUN; skips otherwise.
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
. "$(dirname "$0")/../cli/lib.sh"
. "$(dirname "$0")/../cli/swarm/lib.sh"
. "$(dirname "$0")/machines.sh"
WAN=$3
machines_begin 2

# The commands of the section, as "MACHINE COMMAND", in the order of the text.
commands_of "$ROOT/README.md" 'Two machines in two minutes' |
    awk '/^# on / { where = $3; next } { print where, $0 }' >commands
grep -q '^A strait host ' commands || fail "the README has no command to host"
grep -q '^B strait join ' commands || fail "the README has no command to join"
! grep -vqE '^[AB] strait ' commands || fail "unexpected command in the README: $(grep -vE '^[AB] strait ' commands)"

# Machine A has the corpus and the examples, B nothing; both have the program.
make_corpus
mkdir -p bin A/corpus A/home B/home
ln -s "$STRAIT" bin/strait
cp -r "$ROOT/examples" A
sed -i 's/^  steps: 100$/  steps: 12/; s/^  valid_every: 25/  valid_every: 6/' A/examples/tiny.yaml
cp tokenizer.json A/corpus
cp train.bin A/corpus
cp train.bin A/corpus/valid.bin

# typed MACHINE COMMAND LOG: runs a command in the folder of that machine.
typed() {
    number=0
    [ "$1" = B ] && number=1
    (cd "$1" && exec ip netns exec "$tag-m$number" env STRAIT_CLI="$SCRATCH" HOME="$SCRATCH/$1/home" \
        PATH="$SCRATCH/bin:$PATH" sh -c "$2") >"$3" 2>&1 </dev/null
}

# ends_well PID LOG: waits for a command and fails unless it succeeded.
ends_well() {
    wait "$1" && return
    ERR=$2
    fail "a command of the README failed"
}

# watches MACHINE COMMAND LOG: whether watch shows steps already.
watches() {
    typed "$@" || fail "$(cat "$3")"
    has_text "$3" '2 stages, [1-9][0-9]* steps committed'
}

n=0
pids=
invite=strait1:AQ...
while read -r where command; do
    n=$((n + 1))
    command=$(echo "$command" | sed "s|strait1:AQ\.\.\.|$invite|")
    echo "$where> $command" | cut -c 1-100
    case $command in
    'strait host '*)
        typed "$where" "$command" $n.log &
        HOST=$!
        await "the host prints an invite" has_text $n.log '^strait1:[^ ]*$'
        invite=$(sed -n 's/^\(strait1:[^ ]*\)$/\1/p' $n.log)
        ERR=$n.log
        [ -n "$invite" ] || fail "the host printed no invite"
        ;;
    'strait join '*)
        typed "$where" "$command" $n.log &
        pids="$pids $!"
        ;;
    'strait watch '*)
        STARTED=$HOST
        wait_lines A/runs/two 2
        await "watch shows steps" watches "$where" "$command" $n.log # its status is up to a second old
        says $n.log '2 stages, [1-9][0-9]* steps committed' 'generation 1: all stages ready at step 0'
        cat $n.log
        ;;
    'strait generate '*)
        ends_well $HOST 1.log
        for pid in $pids; do ends_well "$pid" 1.log; done
        typed "$where" "$command" $n.log &
        ends_well $! $n.log
        ;;
    *)
        typed "$where" "$command" $n.log &
        ends_well $! $n.log
        cat $n.log
        ;;
    esac
done <commands
# --device auto takes the GPU where there is one, and says so.
device=cpu
strait doctor --device cuda >/dev/null 2>&1 && device=cuda
[ "$(cat ./*.log | grep -c "^device: $device (")" -eq 2 ] || fail "the workers did not say that they use $device"
[ "$(grep -c '"loss"' A/runs/two/metrics.jsonl)" -eq 12 ] || fail "the run did not finish its 12 steps"
[ "$(ls -A B)" = home ] || fail "files were written on B: $(ls -A B)"
