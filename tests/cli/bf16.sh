#!/bin/sh
# bf16.sh - checks that bf16 on a CPU computes the same bits for any number of threads and stages and
# after --resume, and that a model learns as well as in fp32.
. "$(dirname "$0")/lib.sh"

make_corpus
make_run run.yaml 4 6
runs train run.yaml --dry-run
says "$OUT" '^precision +fp32 \([a-z0-9]+\)$' # auto: runs that exist keep their bits
half="--set device.precision=bf16"
runs train run.yaml --dry-run $half
says "$OUT" '^precision +bf16 \([a-z0-9]+, bf16 products: [a-z0-9_ ]+'

# The environment limits the instructions; what the program does not have is refused.
if [ "$(uname -m)" = x86_64 ]; then
    STRAIT_CPU_KERNELS=sse2
    export STRAIT_CPU_KERNELS
    runs train run.yaml --dry-run $half
    says "$OUT" '^precision +bf16 \(sse2, bf16 products: converted to f32'
    STRAIT_CPU_KERNELS=abacus
    refuses 2 'STRAIT_CPU_KERNELS=abacus: this program has no such kernels' train run.yaml
    unset STRAIT_CPU_KERNELS
fi

runs train run.yaml --out one $half
runs train run.yaml --out threads $half --set device.threads=3
same_metrics one threads
same_weights one threads
# Activations are bf16, so both variants carry them exactly.
for variant in fp32 bf16; do
    runs train run.yaml --out "cut-$variant" $half --set stages.count=3 --set link.codec.variant=$variant
    same_metrics one "cut-$variant"
    same_weights one "cut-$variant"
done
runs train run.yaml --out full
metrics_of one >one.metrics
metrics_of full | cmp -s - one.metrics && fail "bf16 and fp32 give the same losses: bf16 is not used"

# A run that was stopped continues with the same bits.
runs train run.yaml --out stopped $half --set train.steps=4 --set train.schedule=constant
runs train run.yaml --out whole $half --set train.steps=8 --set train.schedule=constant
runs train run.yaml --out stopped --resume $half --set train.steps=8 --set train.schedule=constant
same_weights stopped whole

# Learning: the mean loss of the last tenth of 300 steps.
late_loss() {
    jq -s '[.[] | select(.loss) | .loss] | .[-30:] | add / length' "$1/metrics.jsonl"
}
make_run long.yaml 2 300
for p in fp32 bf16; do
    runs train long.yaml --out "long-$p" --set device.precision=$p --set train.batch_tokens=256 \
        --set stages.microbatch=16 --set train.valid_every=0 --set train.save_every=0
done
a=$(late_loss long-fp32) b=$(late_loss long-bf16)
awk "BEGIN { exit !($a < 5 && $b / $a < 1.005 && $a / $b < 1.005) }" ||
    fail "mean loss of the last 30 of 300 steps: $b in bf16, $a in fp32"
wait_all_exited
