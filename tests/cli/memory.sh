#!/bin/sh
# memory.sh - the peak that --dry-run predicts is within 10% of what the run then takes.
# Run as: memory.sh PROGRAM PEAK, where PEAK prints the peak memory of a command.
. "$(dirname "$0")/lib.sh"

make_corpus
cat >run.yaml <<END
model: {width: 256, layers: 4, heads: 4, context: 128, vocab: 4096}
data: {train: train.bin, valid: train.bin, tokenizer: tokenizer.json, valid_tokens: 256}
train: {steps: 2, batch_tokens: 1024, save_every: 1}
END

# within NAME SETS...
within() {
    name=$1
    shift
    runs train run.yaml --dry-run "$@"
    planned=$(sed -n 's/^peak memory.*(\([0-9]*\) bytes)$/\1/p' "$OUT")
    peak=$("$HELPER" "$STRAIT" train run.yaml --out "$name" "$@" 2>"$ERR") || fail "$name ended badly"
    echo "$name: planned $planned bytes, took $peak"
    [ $((planned * 100)) -ge $((peak * 90)) ] || fail "$name: more than 10% above the plan"
    [ $((planned * 100)) -le $((peak * 110)) ] || fail "$name: more than 10% below the plan"
    again=$("$HELPER" "$STRAIT" train run.yaml --out "$name" --resume "$@" --set train.steps=3 \
        2>"$ERR") || fail "$name did not resume"
    echo "$name: resumed, took $again"
    [ $((planned * 100)) -ge $((again * 90)) ] || fail "$name: resumed, more than 10% above the plan"
}

within plain
within recomputed --set train.recompute=true
within muon --set train.optimizer=muon --set model.width=128 --set stages.microbatch=2
within larger --set model.width=384 --set model.heads=6 --set model.layers=6 \
    --set train.recompute=true
