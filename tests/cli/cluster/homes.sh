#!/bin/sh
# homes.sh - a stage at 10 Mb/s between neighbours at 80 Mb/s, each direction of a home shared by all of
# its links: two replicas of it must give 1.8 times the tokens per second, four 3.4 times, and what
# `strait plan` predicts must be within 10% of each. Prints a table.
#
# A busy machine adds the time of its processors to what the links take. The same run without slow links
# measures that. The links are as much slower as it takes for them to decide, and the rest is allowed on top.
. "$(dirname "$0")/../lib.sh"

make_corpus
# 16 MB cross the narrow home in each direction, and its stage computes for some hundredths of a second.
# A group per microbatch, so that all replicas begin at once.
cat >fast.yaml <<END
model: {width: 64, layers: 3, heads: 2, ffn: 32, context: 64}
data: {train: train.bin, tokenizer: tokenizer.json}
train: {steps: 3, batch_tokens: 32768, save_every: 0}
stages: {count: 3, microbatch: 8, groups: 64, schedule: 1f1b-window}
device: {threads: 1}
END
echo 'link: {codec: {variant: fp32}}' >>fast.yaml

# seconds RUN: the time of its fastest step after the first: what disturbs a step makes it longer.
seconds() {
    sed -n 's/.*"tokens_per_s":\([0-9.e+]*\).*/\1/p' "$1/metrics.jsonl" | sed 1d | sort -g | awk 'END { print 32768 / $1 }'
}

# choose: writes run.yaml, with links at which four replicas take eight times as long as the machine itself.
choose() {
    runs train fast.yaml --out probe --set 'stages.replicas=[1,4,1]'
    slower=$(seconds probe | awk '{ n = 8 * $1 / 3.3; print (n < 1 ? 1 : n > 8 ? 8 : n) }')
    wide=$(echo "$slower" | awk '{ printf "%dkbit", 80000 / $1 }')
    narrow=$(echo "$slower" | awk '{ printf "%dkbit", 10000 / $1 }')
    echo "links of $wide and $narrow"
    sed '$d' fast.yaml >run.yaml
    cat >>run.yaml <<END
link: {codec: {variant: fp32}, emulate: {up: [$wide, $narrow, $wide], down: [$wide, $narrow, $wide]}}
END
}

# measure N: planned and measured seconds of a step with N replicas, and those without slow links before and
# after, to table-N.
measure() {
    set="--set stages.replicas=[1,$1,1]"
    runs plan run.yaml --json --gflops 10 $set
    planned=$(sed 's/.*"tokens_per_s": \([0-9.e+]*\).*/\1/' "$OUT" | awk '{ print 32768 / $1 }')
    rm -rf "run-$1" before after
    runs train fast.yaml --out before $set
    runs train run.yaml --out "run-$1" $set
    runs train fast.yaml --out after $set
    echo "$1 $planned $(seconds "run-$1") $(seconds before) $(seconds after)" >"table-$1"
}

# judge N: whether the plan and the gain over one replica are right, given what the machine itself took: at most a
# quarter of what the links take, however busy it is.
judge() {
    cat table-1 "table-$1" | awk '{ busy = $4 > $5 ? $4 : $5; if (NR == 1) one = $3 }
        END { printf "%d replicas: planned %.2f s, measured %.2f s (%.2f s without slow links), %.2f times one\n",
                  $1, $2, $3, busy, one / $3
              if (busy > $2 / 4) busy = $2 / 4
              least = $1 == 4 ? 3.4 : $1 == 2 ? 1.8 : 1
              exit !($3 >= 0.9 * $2 && $3 <= $2 / 0.9 + busy && one >= least * ($3 - busy)) }'
}

choose
# Other programs may have come in between: then it is measured again.
for n in 1 2 4; do
    for again in 1 2 3; do
        measure $n
        judge $n && continue 2
    done
    fail "replicas of a narrow stage gain too little, or the plan is off: $(cat table-*)"
done
same_metrics run-1 run-4 # the bits of one pipeline
