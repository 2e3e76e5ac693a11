#!/bin/sh
# memory.sh - checks that the peak memory that --dry-run predicts is within 10% of the measured one.
# Run as: memory.sh PROGRAM PEAK, where PEAK prints the peak memory of a command.
. "$(dirname "$0")/lib.sh"

make_corpus
cat >run.yaml <<END
model: {width: 256, layers: 4, heads: 4, context: 128, vocab: 4096}
data: {train: train.bin, valid: train.bin, tokenizer: tokenizer.json, valid_tokens: 256}
train: {steps: 2, batch_tokens: 1024, save_every: 1}
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
    again=$("$HELPER" "$STRAIT" train run.yaml --out "$name" --resume "$@" --set train.steps=3 \
        2>"$ERR") || fail "$name did not resume"
    echo "$name: resumed, measured $again"
    [ $((planned * 100)) -ge $((again * 90)) ] || fail "$name: resumed, more than 10% above the plan"
}

predicts_memory plain
predicts_memory recomputed --set train.recompute=true
predicts_memory muon --set train.optimizer=muon --set model.width=128 --set stages.microbatch=2
predicts_memory larger --set model.width=384 --set model.heads=6 --set model.layers=6 \
    --set train.recompute=true
