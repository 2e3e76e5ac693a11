#!/bin/sh
# progress.sh - what a run prints while it trains: lines for people, JSON for scripts, a log file, and terminals
# of several widths.
here=$(cd "$(dirname "$0")/.." && pwd)
. "$here/cli/lib.sh"

make_corpus
make_run run.yaml 2 10

runs train run.yaml --out plain --set train.log_every=5
says "$ERR" '10 steps of 128 tokens, 1\.28k in all$' \
    '^step 5/10  loss [0-9.]+  left [0-9]+s  640 tokens  [0-9]+ tok/s  lr [0-9.e-]+  norm [0-9.e-]+$' \
    '^step 10/10  loss [0-9.]+  left 0s  valid [0-9.]+  1\.28k tokens' '^done: plain$'
[ ! -s "$OUT" ] || fail "standard output is for results"

# Time of day and tokens of every step, also across a resume with another batch.
now=$(date +%s)
runs train run.yaml --out resumed --set train.steps=4
runs train run.yaml --out resumed --resume --set train.steps=6 --set train.batch_tokens=256
jq -es --argjson now "$now" '[.[] | select(.loss)] | map(.tokens) == [128, 256, 384, 512, 768, 1024] and
    all(.time > $now - 5 and .time < $now + 1000) and (map(.time) | . == sort)' resumed/metrics.jsonl >/dev/null ||
    fail "tokens or times are wrong: $(cat resumed/metrics.jsonl)"

# Several stages: where each spent its time, and what crossed each boundary.
runs train run.yaml --out two --set stages.count=2 --set link.transport=inproc
jq -es '[.[] | select(.loss)] | all((.stage_busy_seconds | length == 2 and all(. > 0)) and
    (.stage_wait_seconds | length == 2 and all(. >= 0)) and
    .boundary_forward_bytes == [.forward_bytes_per_token * 128] and
    .boundary_backward_bytes == [.backward_bytes_per_token * 128])' two/metrics.jsonl >/dev/null ||
    fail "times or bytes of stages are wrong: $(tail -n 1 two/metrics.jsonl)"

# Quiet: nothing but notes and errors; the log file has all of it, with times, and is appended to.
runs train run.yaml --out quiet -q --log a.log
[ ! -s "$OUT" ] && [ ! -s "$ERR" ] || fail "-q prints"
time='^20[0-9-]+T[0-9:]+\.[0-9]{3}Z'
says a.log "$time quiet: 0\\.[0-9]+M parameters" "$time step 10/10  loss" "$time step 10  validation" \
    "$time done: quiet"
lines=$(wc -l <a.log)
runs train run.yaml --out quiet2 -q --log a.log
[ "$(wc -l <a.log)" -eq $((2 * lines)) ] || fail "the log was replaced instead of appended to"
refuses 3 '--log none/a.log: cannot open' train run.yaml --out nolog --log none/a.log
[ ! -e nolog ] || fail "a refused run left a folder"
runs train run.yaml --out fulllog --log /dev/full
says "$ERR" 'log /dev/full lacks lines'

# JSON lines on standard output, with the figures of metrics.jsonl and nothing on standard error.
runs train run.yaml --out json --json
[ ! -s "$ERR" ] || fail "--json prints to standard error"
jq -es '.[0].event == "opened" and .[-1] == {"event": "done", "folder": "json"} and
    ([.[] | select(.event == "saved") | .step] == [4, 8, 10])' "$OUT" >/dev/null || fail "--json: events"
jq -c 'select(.event == "step") | [.step, .loss, .tokens, .grad_norm, .time]' "$OUT" >steps.json
jq -c 'select(.loss) | [.step, .loss, .tokens, .grad_norm, .time]' json/metrics.jsonl >steps.file
cmp -s steps.json steps.file || fail "--json and metrics.jsonl differ: $(diff steps.json steps.file | head -n 4)"
jq -c 'select(.event == "valid") | .valid_loss' "$OUT" >valid.json
jq -c '.valid_loss | numbers' json/metrics.jsonl | cmp -s - valid.json || fail "--json: validation losses"

# TensorBoard's files, read back by another program: the figures of metrics.jsonl, rounded to floats.
if command -v python3 >/dev/null; then
    runs train run.yaml --out board --set metrics.tensorboard=events --set train.steps=6
    runs train run.yaml --out board --set metrics.tensorboard=events --resume
    python3 "$here/page/tensorboard.py" events >scalars 2>"$ERR" || fail "event files cannot be read"
    [ "$(ls events | wc -l)" -ge 1 ] || fail "no event files"
    for pair in loss/train:loss loss/valid:valid_loss grad_norm:grad_norm tokens:tokens; do
        jq -r ".${pair#*:} | numbers" board/metrics.jsonl >wanted
        awk -v tag="${pair%:*}" '$2 == tag { print $3 }' scalars | paste -d ' ' - wanted |
            awk '{ d = $1 - $2; if (d < 0) d = -d; if ($2 == "" || d > 1e-6 * ($2 < 0 ? -$2 : $2)) bad = 1 } END { exit bad || NR < 2 }' ||
            fail "TensorBoard's ${pair%:*} differs from metrics.jsonl"
    done
fi

# Terminals: colours unless NO_COLOR is set, no redrawing on a dumb one, and step, loss and time left at any width.
command -v script >/dev/null || exit 0
# on_terminal COLUMNS COMMAND...: prints what strait shows there, one line per redrawing.
on_terminal() {
    columns=$1
    shift
    script -qec "stty cols $columns; env STRAIT_CLI=$SCRATCH TERM=xterm $* $STRAIT train run.yaml --out term-$columns" \
        /dev/null </dev/null | tr '\r' '\n'
    rm -rf "term-$columns"
}
for columns in 24 40 80 200; do
    on_terminal $columns >"$OUT"
    grep '[0-9]/10 ' "$OUT" | grep -v '10/10' | sed 's/^.\[K//' >drawn
    awk -v most="$columns" 'length($0) >= most { exit 1 }' drawn || fail "a line is wider than $columns columns"
    awk '!/^(step )?[0-9]+\/10  (loss )?[0-9]+\.[0-9]{4}  (left )?[0-9]+s/ { exit 1 } END { exit NR == 0 }' drawn ||
        fail "at $columns columns step, loss or time left is missing"
done
on_terminal 80 TERM=dumb >"$OUT"
! grep -q "$(printf '\033')" "$OUT" || fail "escape codes on a dumb terminal"
mkdir -p term-80/checkpoints # a note: there is no checkpoint yet
note() {
    script -qec "env STRAIT_CLI=$SCRATCH $* $STRAIT train run.yaml --out term-80 --resume" /dev/null </dev/null
    rm -r term-80/metrics.jsonl term-80/checkpoints/*
}
note TERM=xterm >"$OUT"
grep -q "$(printf '\033')\[33mnote: no checkpoint" "$OUT" || fail "notes have no colour on a terminal"
note TERM=xterm NO_COLOR=1 >"$OUT"
grep -q 'note: no checkpoint' "$OUT" || fail "no note"
! grep -q "$(printf '\033')\[33m" "$OUT" || fail "NO_COLOR is ignored"

# Interrupted on a terminal: what follows the redrawn line begins a line.
script -qec "env STRAIT_CLI=$SCRATCH TERM=xterm $STRAIT train run.yaml --out cut --set train.steps=1000000 \
    --set train.valid_every=0 --set train.save_every=0" drawn </dev/null >/dev/null &
STARTED=$!
wait_lines cut 3
kill -INT "$(our_processes)"
reap
tr -d '\r' <drawn >"$OUT"
says "$OUT" '^to resume: strait train --resume cut$' '^strait: stopped after step [0-9]+ of 1000000, saved in cut$'
