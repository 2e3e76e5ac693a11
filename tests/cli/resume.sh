#!/bin/sh
# resume.sh - after kill -9 at any moment, --resume computes the same numbers as an undisturbed run.
. "$(dirname "$0")/lib.sh"

make_corpus
steps=120
[ -z "${SANITIZED:-}" ] || steps=60 # steps take many times as long under a sanitizer
make_run run.yaml 2 $steps

# stop_with SIGNAL: sends SIGNAL to the run and waits for all its processes. The signal may arrive before
# the stages have started, or after the run has ended.
stop_with() {
    kill "-$1" "$STARTED" 2>/dev/null
    reap
    wait_all_exited
}

# stop_at FOLDER LINES SIGNAL SETS...: sends SIGNAL when the run has written LINES lines of metrics. If
# the run ended before, it is started again.
stop_at() {
    folder=$1
    lines=$2
    signal=$3
    shift 3
    for _ in $(seq 50); do
        begin train run.yaml --out "$folder" --resume "$@"
        wait_lines "$folder" "$lines"
        stop_with "$signal"
        [ "$code" -eq 0 ] || return
        rm -r "$folder"
    done
    fail "the run always ended before it could be signalled at $lines lines"
}

# kill_and_resume FOLDER SETS...: kills the run at fixed and at random moments, then lets it finish.
kill_and_resume() {
    folder=$1
    shift
    begin train run.yaml --out "$folder" "$@" # right after the start
    stop_with KILL
    for lines in 1 9 31; do
        stop_at "$folder" "$lines" KILL "$@"
        [ "$code" -eq 137 ] || fail "exit code $code after a kill at $lines lines"
    done
    for pause in 0.03 0.21 0.4 0.33; do
        begin train run.yaml --out "$folder" --resume "$@"
        sleep "$pause"
        stop_with KILL
    done
    runs train run.yaml --out "$folder" --resume "$@"
}

runs train run.yaml --out straight
kill_and_resume killed
same_metrics straight killed
same_weights straight killed

# With a checkpoint per step, nearly every kill interrupts the writing of one.
kill_and_resume writing --set train.save_every=1 --set train.keep_checkpoints=3
same_metrics straight writing
same_weights straight writing

# Ctrl-C finishes the step, saves, and prints the command that resumes; so does SIGHUP, unless this
# script itself runs under nohup.
signals='INT TERM HUP'
case $(sed -n '/^SigIgn/s/.*\(.\)$/\1/p' /proc/$$/status) in
[13579bdf]) signals='INT TERM' ;;
esac
for signal in $signals; do
    stop_at "$signal" 20 "$signal"
    [ "$code" -eq 130 ] || fail "exit code $code after $signal, expected 130"
    says "$ERR" "^to resume: strait train --resume $signal\$" '^strait: stopped after'
    runs train --resume "$signal"
    ! grep -q 'changed since' "$ERR" || fail "the run file of the folder is said to have changed"
    same_metrics straight "$signal"
    same_weights straight "$signal"
done

# The printed command is quoted for a shell.
stop_at 'a folder' 20 INT --set 'stages.split=[2]'
says "$ERR" "to resume: strait train --resume 'a folder'\$"
eval "runs $(sed -n 's/^to resume: strait //p' "$ERR")"
same_metrics straight 'a folder'

# A run.yaml inside a run's folder means that folder, whatever the name of the run is.
stop_at inside 20 INT
refuses 2 'inside already contains a run' train inside/run.yaml
runs train inside/run.yaml --resume
says "$ERR" 'resuming after step'
[ ! -e runs ] || fail "a run.yaml inside a run's folder trained in another one"
same_metrics straight inside
refuses 2 'inside is a folder: give a run file, or --resume' train inside
mkdir empty
refuses 2 'empty is a folder: give a run file$' train empty
refuses 2 'empty contains no run: there is no run.yaml in it' train --resume empty
refuses 2 '--out names another one' train --resume inside --out elsewhere

# What changed is said and kept; what cannot change is refused, and then nothing is kept.
before=$(sum_of inside)
refuses 3 'model.ffn 48' train --resume inside --set model.ffn=64
[ "$before" = "$(sum_of inside)" ] || fail "a change that was refused changed the folder"
runs train --resume inside --set train.learning_rate=0.003 --set train.seed=7 --set train.steps=$((steps + 2))
says "$ERR" "^note: changed since run.yaml was written, at step $steps: train.steps $steps -> $((steps + 2)), train.learning_rate 0.005 -> 0.003"
jq -es --argjson at $steps 'map(select(.derived | not)) | map([.step, .key, .from, .to]) ==
    [[$at, "train.steps", "\($at)", "\($at + 2)"], [$at, "train.learning_rate", "0.005", "0.003"],
     [$at, "train.seed", "1", "7"]]' inside/changes.jsonl >/dev/null || fail "changes.jsonl is $(cat inside/changes.jsonl)"
runs train --resume inside
! grep -q 'changed since' "$ERR" || fail "the same run file is said to have changed"

# A second interrupt stops at once, without finishing a step that would take minutes. TSan delays
# signals during pure arithmetic, so it is excluded.
if [ "${SANITIZED:-}" != thread ]; then
    begin train run.yaml --out twice --set model.width=512 --set model.context=256 \
        --set train.batch_tokens=1048576 --set data.valid_tokens=0 --set train.steps=2
    await "the run begins" has_text "$ERR" parameters
    kill -INT "$STARTED"
    sleep 0.2
    kill -0 "$STARTED" 2>/dev/null || fail "the first interrupt stopped the run in the middle of a step"
    # On a busy machine two signals may be delivered as one: repeat the second until the run ends.
    for _ in $(seq $((PATIENCE * 5))); do
        kill -INT "$STARTED" 2>/dev/null || break
        sleep 0.2
    done
    reap
    [ "$code" -eq 130 ] || fail "exit code $code after two interrupts, expected 130"
    ! grep -q 'stopped after' "$ERR" || fail "the second interrupt waited for the step"
    ! ls twice/checkpoints | grep -q . || fail "a checkpoint was written after two interrupts"
fi

# Two signals at once are one request, as timeout(1) sends them: the run saves. Both wait for it while it is stopped.
begin train run.yaml --out both --set train.steps=4000 --set train.save_every=0
wait_lines both 3
for signal in STOP TERM INT CONT; do kill -$signal "$STARTED"; done
reap
[ "$code" -eq 130 ] || fail "exit code $code after two signals at once, expected 130"
says "$ERR" "stopped after step"
ls both/checkpoints | grep -q . || fail "no checkpoint was written after two signals at once"

# Resuming a finished run changes nothing.
before=$(metrics_of killed)
runs train run.yaml --out killed --resume
says "$ERR" '^nothing is left to train: train.steps is [0-9]+;'
[ "$before" = "$(metrics_of killed)" ] || fail "a finished run changed its metrics"

# No checkpoint is written after a step with a non-finite gradient: the earlier ones remain usable.
refuses 3 'gradients in a row were not finite' train run.yaml --out astray --set stages.count=1 \
    --set train.learning_rate=100 --set train.warmup=0 --set train.clip=0 --set train.save_every=1 --set train.keep_checkpoints=2
newest=$(ls astray/checkpoints | tail -n 1)
first=$(grep -n '"grad_norm":null' astray/metrics.jsonl | head -n 1 | cut -d: -f1)
[ -n "$first" ] && [ "${newest#"${newest%%[!0]*}"}" -lt "$first" ] || fail "checkpoint $newest was written although step $first was not finite"
wait_all_exited
