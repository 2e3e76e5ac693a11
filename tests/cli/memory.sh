#!/bin/sh
# memory.sh - checks that the peak memory that --dry-run predicts is within 10% of the measured one, and that import and
# export take that of a tensor, not of the model.
# Run as: memory.sh PROGRAM PEAK, where PEAK prints the peak memory of a command.
. "$(dirname "$0")/lib.sh"

make_corpus
cat >run.yaml <<END
model: {width: 256, layers: 4, heads: 4, context: 128, vocab: 4096}
data: {train: train.bin, valid: train.bin, tokenizer: tokenizer.json, valid_tokens: 256}
train: {steps: 1, batch_tokens: 1024, save_every: 1}
END

# predicts_memory NAME SETS...: compares prediction and measurement, also after a resume.
predicts_memory() {
    name=$1
    shift
    runs train run.yaml --dry-run "$@"
    planned=$(sed -n 's/^peak memory.*(\([0-9]*\) bytes)$/\1/p' "$OUT")
    peak=$("$HELPER" "$STRAIT" train run.yaml --out "$name" "$@" 2>"$ERR") || fail "$name failed"
    echo "$name: planned $planned bytes, measured $peak"
    [ $((planned * 100)) -ge $((peak * 90)) ] || fail "$name: more than 10% above the plan"
    [ $((planned * 100)) -le $((peak * 110)) ] || fail "$name: more than 10% below the plan"
    again=$("$HELPER" "$STRAIT" train run.yaml --out "$name" --resume "$@" --set train.steps=2 \
        2>"$ERR") || fail "$name did not resume"
    echo "$name: resumed, measured $again"
    [ $((planned * 100)) -ge $((again * 90)) ] || fail "$name: resumed, more than 10% above the plan"
}

predicts_memory plain
predicts_memory recomputed --set train.recompute=true
predicts_memory muon --set train.optimizer=muon --set model.width=128 --set stages.microbatch=2
predicts_memory larger --set model.width=384 --set model.heads=6 --set model.layers=6 \
    --set train.recompute=true

# ---- conversions: 106 MB of weights, in tensors of 2.9 MB at most ----

runs train run.yaml --out large --set model.width=512 --set model.heads=8 --set model.layers=8 --set model.ffn=1408 \
    --set model.vocab=0 --set model.context=16 --set train.batch_tokens=16 --set train.steps=1 --set train.save_every=0 \
    --set data.valid_tokens=0
# converts ARGS...: checks the peak memory of a command.
converts() {
    peak=$("$HELPER" "$STRAIT" "$@" 2>"$ERR") || fail "$* failed"
    echo "$1: measured $peak"
    [ "$peak" -lt 50000000 ] || fail "$*: $peak bytes"
}
converts export large --to hf --out large-hf
converts export large --to hf --out large-bf16 --dtype bf16
converts export large --to gguf --out large.gguf
converts import large-hf --out large-back
converts import large-bf16 --out large-again

# ---- a run that does not fit is refused before memory is taken, with changes that make it fit ----

# fits_with CHANGE ARGS...: checks that the run of ARGS fits once the change was made.
fits_with() {
    change=$1
    shift
    sets=$(echo "$change" | sed 's/ with / /g; s/[a-z._]*=/--set &/g')
    # shellcheck disable=SC2086
    runs train run.yaml --dry-run "$@" $sets
}

# A vocabulary of 16 million tokens takes more than any machine that runs this has.
huge="--set model.vocab=16777216 --set model.width=1024"
for how in --dry-run ''; do
    refuses 5 'needs .* of memory, and .*; it would fit with .*--force tries anyway' \
        train run.yaml --out huge $huge $how
done
[ ! -e huge ] || fail "a run that was refused left a folder"
sed 's/.*it would fit with //; s/ (--dry-run.*//; s/, or /\n/g' "$ERR" | sed 's/ (needs.*//' >changes
[ "$(wc -l <changes)" -eq 3 ] || fail "expected three changes"
while read -r change; do fits_with "$change" $huge; done <changes
runs train run.yaml --dry-run --force $huge

# The same in a control group of version 1 or 2, as a container has, if this script may make one.
group=
for parent in /sys/fs/cgroup/memory /sys/fs/cgroup; do
    limit=memory.max
    [ "$parent" = /sys/fs/cgroup ] || limit=memory.limit_in_bytes
    [ -e "$parent/cgroup.procs" ] && mkdir "$parent/strait-$$" 2>/dev/null || continue
    group=$parent/strait-$$
    [ -w "$group/$limit" ] && echo 64M >"$group/$limit" && break
    rmdir "$group"
    group=
done
if [ -n "$group" ]; then
    trap 'rmdir "$group"; clean_up' EXIT
    # in_group ARGS...: runs strait inside the group.
    in_group() {
        sh -c 'echo $$ >"$0/cgroup.procs" && exec env STRAIT_CLI="$1" "$@"' "$group" "$STRAIT" "$@" \
            >"$OUT" 2>"$ERR"
        code=$?
    }
    in_group train run.yaml --out grouped --set train.batch_tokens=4096 --set stages.microbatch=32
    [ "$code" -eq 5 ] || fail "exit code $code in a control group that is too small, expected 5"
    says "$ERR" 'are left in this control group \(limit 64 MiB\); it would fit with [a-z.]*='
    in_group train run.yaml --out grouped --set model.width=64
    [ "$code" -eq 0 ] || fail "exit code $code of a run that fits its control group"
else
    echo "cannot make a control group: skipped the part that needs one"
fi
