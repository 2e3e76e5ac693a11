#!/bin/sh
# homes.sh - a stage at 10 Mb/s between neighbours at 80 Mb/s, each direction of a home shared by all of
# its links: two replicas of it must give 1.8 times the tokens per second, four 3.4 times, and what
# `strait plan` predicts must be within 10% of each. Prints a table.
. "$(dirname "$0")/../lib.sh"

make_corpus
# 16 MB cross the narrow home in each direction, and its stage computes for some hundredths of a second.
# A group per microbatch, so that all replicas begin at once.
cat >run.yaml <<END
model: {width: 64, layers: 3, heads: 2, ffn: 32, context: 64}
data: {train: train.bin, tokenizer: tokenizer.json}
train: {steps: 3, batch_tokens: 32768, save_every: 0}
stages: {count: 3, microbatch: 8, groups: 64, schedule: 1f1b-window}
device: {threads: 1}
link: {codec: {variant: fp32}, emulate: {up: [80mbit, 10mbit, 80mbit], down: [80mbit, 10mbit, 80mbit]}}
END

# median RUN: tokens per second of the steps after the first.
median() {
    sed -n 's/.*"tokens_per_s":\([0-9.e+]*\).*/\1/p' "$1/metrics.jsonl" | sed 1d | sort -g |
        awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

for n in 1 2 4; do
    runs plan run.yaml --json --gflops 10 --set "stages.replicas=[1,$n,1]"
    planned=$(sed 's/.*"tokens_per_s": \([0-9.e+]*\).*/\1/' "$OUT")
    runs train run.yaml --out "run-$n" --set "stages.replicas=[1,$n,1]"
    echo "$n $planned $(median "run-$n")"
done >table
awk '{ if (NR == 1) one = $3
       printf "%d replicas: planned %.0f tokens/s, measured %.0f (%+.1f%%), %.2f times one\n",
           $1, $2, $3, 100 * ($3 / $2 - 1), $3 / one }' table
awk '{ if (NR == 1) one = $3
       if ($3 < 0.9 * $2 || $3 > 1.1 * $2) exit 1
       if ($1 == 2 && $3 < 1.8 * one || $1 == 4 && $3 < 3.4 * one) exit 1 }' table ||
    fail "replicas of a narrow stage gain too little, or the plan is off: $(tr '\n' ';' <table)"
same_metrics run-1 run-4 # the bits of one pipeline
