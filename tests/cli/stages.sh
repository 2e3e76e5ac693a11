#!/bin/sh
# stages.sh - a run of two stages loses its coordinator, a stage or a link: it must end in time, name what
# was lost and at which step, leave no process behind, and compute the same bits after a resume.
. "$(dirname "$0")/lib.sh"

make_corpus
make_run run.yaml 2 40
two="--set stages.count=2 --set link.emulate.delay=8ms"
# Slow links: runs that are to be killed must take seconds on a fast machine, too.
slow="$two --set link.emulate.delay=60ms"
runs train run.yaml --out straight $two

# Where stages compute changes nothing: a device for each, or the devices of the machine in turn.
for ordinal in '[0,0]' auto; do
    rm -rf placed
    runs train run.yaml --out placed $two --set "device.ordinal=$ordinal"
    same_metrics straight placed
done
refuses 2 'device cpu:1 does not exist' train run.yaml --out elsewhere $two --set 'device.ordinal=[0,1]'
refuses 2 'device.ordinal: 3 devices for 2 stages' train run.yaml --out elsewhere $two --set 'device.ordinal=[0,0,0]'
runs train run.yaml --out elsewhere $two --dry-run --set 'device.ordinal=[0,0]'
says "$OUT" '^stage 0 .* on cpu:0$' '^stage 1 .* on cpu:0$'
runs plan run.yaml $two --gflops 10 --set 'device.ordinal=[0,3]' # a plan may be of another machine
says "$OUT" '^ +0 .* cpu:0$' '^ +1 .* cpu:3$'
[ ! -e elsewhere ] || fail "a refused run left a folder"

stage_process() {
    cut -d ' ' -f 1 "/proc/$STARTED/task/$STARTED/children" | grep .
}

# ends_by_itself: checks that the run ends with an error that names stage and step.
ends_by_itself() {
    await "the run ends" is_over "$STARTED"
    ends 4
    wait_all_exited
    tail -n 1 "$ERR" | grep -qE '^strait: .*stage [01]' || fail "the error does not name the stage"
    tail -n 1 "$ERR" | grep -qE 'step [0-9]+' || fail "the error does not name the step"
}

# The coordinator is killed: its stages notice and exit.
folder=coordinator
begin train run.yaml --out $folder $two
kill -9 "$STARTED"
reap
wait_all_exited
for lines in 3 17; do
    begin train run.yaml --out $folder --resume $slow
    wait_lines $folder $lines
    kill -9 "$STARTED" || fail "the run ended before it could be killed"
    reap
    wait_all_exited
done
runs train run.yaml --out $folder --resume $two
same_metrics straight $folder
same_weights straight $folder

# A stage is killed.
folder=stage
resume=
for lines in 1 12 25; do
    begin train run.yaml --out $folder $resume $slow
    wait_lines $folder $lines
    victim=$(stage_process) || fail "there is no stage to kill"
    kill -9 "$victim"
    ends_by_itself
    says "$ERR" 'stage [01] was killed by signal 9 at step [0-9]+'
    resume=--resume
done
runs train run.yaml --out $folder --resume $two
same_metrics straight $folder
same_weights straight $folder

# begin_with_deadline FOLDER SETS...: starts a run that must notice a hang, and waits until it has made steps. Where the
# machine is too busy for a short deadline, the run ends before that, and is started again with a longer one; $deadline
# is the one it has.
begin_with_deadline() {
    folder=$1
    shift
    for deadline in 3 10 40; do
        rm -rf "$folder"
        begin train run.yaml --out "$folder" $slow "$@" --set link.deadline=${deadline}s
        wait_lines "$folder" 8
        is_over "$STARTED" || return 0
        reap
        wait_all_exited
    done
    fail "the run does not make steps with a deadline of $deadline s"
}

# A stage hangs, and a link is cut: the deadline ends the run.
begin_with_deadline silent
victim=$(stage_process) || fail "there is no stage to stop"
kill -STOP "$victim"
ends_by_itself
runs train run.yaml --out $folder --resume $two
same_metrics straight $folder

# A stage that is a thread hangs, which cannot be killed: the deadline ends the run without it. Not under a sanitizer,
# whose own locks the thread may hold, so that all others wait for it.
has_frozen() {
    [ -s frozen ] || is_over $freezer
}

# freezes_in_time: stops the thread until the run has ended. Only a neighbour that waits for a crossing has a deadline: a
# thread that was stopped where none does, as in an update, goes on and is stopped again.
freezes_in_time() {
    for seconds in 20 20 40 40 80 160; do
        : >frozen
        "$(dirname "$HELPER")/cli_freeze" "$thread" >frozen &
        freezer=$!
        await "a thread is stopped" has_frozen
        [ -s frozen ] || return 1
        for _ in $(seq $((seconds * 10))); do
            is_over "$STARTED" && return 0
            sleep 0.1
        done
        kill -9 $freezer # which lets the thread go on
        wait $freezer 2>/dev/null
    done
    fail "the run does not notice a thread that hangs"
}
hang_a_thread() {
    begin_with_deadline thread --set link.transport=inproc
    thread=$(grep -lx strait-stage-1 "/proc/$STARTED/task/"*/comm | sort -V | head -n 1 | cut -d / -f 5)
    [ -n "$thread" ] || fail "no thread is named strait-stage-1"
    if freezes_in_time; then
        ends_by_itself
        says "$ERR" "received nothing from stage 1 for $deadline s at step [0-9]+|lost its link to stage 1"
        runs train run.yaml --out $folder --resume $two
        same_metrics straight $folder
    else
        echo "note: a thread may not be traced here: none was made to hang" >&2
        kill -9 "$STARTED"
        reap
    fi
    wait $freezer
}
[ -n "${SANITIZED:-}" ] || hang_a_thread

folder=cut
for after in 2 6 12; do # seconds; a busy machine may need some to open the link that is to be cut
    rm -rf $folder
    begin train run.yaml --out $folder $slow --set link.deadline=5s \
        --set link.emulate.delay=$((after * 50))ms --set link.emulate.drop_after=${after}s
    ends_by_itself
    grep -q 'no link within' "$ERR" || break
done
tail -n 1 "$ERR" | grep -qE 'stage [01].*stage [01]' || fail "the error does not name both ends of the link"
runs train run.yaml --out $folder --resume $two
same_metrics straight $folder

# Signals to the whole process group, as a terminal and a service manager send them.
for signal in INT TERM; do
    folder=interrupt-$signal
    begin train run.yaml --out $folder $slow
    wait_lines $folder 10
    kill -$signal $(our_processes)
    ends 130
    wait_all_exited
    says "$ERR" 'to resume: strait train --resume'
    runs train run.yaml --out $folder --resume $two
    same_metrics straight $folder
    same_weights straight $folder
done

# A run may resume with another number of stages; with fp32 on the wire the bits are the same.
folder=one-stage
begin train run.yaml --out $folder $slow
wait_lines $folder 14
kill -INT "$STARTED"
ends 130
runs train run.yaml --out $folder --resume
same_metrics straight $folder
same_weights straight $folder

# A stage that cannot be started is named with its exit status and its command.
refuses 4 'stage 0 could not be started: it ended with code 1; .*stages.launch: false' \
    train run.yaml --out unstarted --set stages.count=2 --set stages.launch=false
refuses 2 'stage 0: /nowhere/ssh cannot be started' \
    train run.yaml --out unstarted --set stages.count=2 --set stages.launch=/nowhere/ssh

# Started with closed standard files: no socket gets their descriptors.
(strait train run.yaml --out closed-files $two <&- >&- 2>&-) || fail "closed standard files: exit code $?"
same_metrics straight closed-files
wait_all_exited
