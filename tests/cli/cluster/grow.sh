#!/bin/sh
# grow.sh - a swarm of two stages that six workers join one by one, each at a home whose wires limit the run: prints
# tokens per second after every arrival, beside what `strait plan` says of so many replicas. Every arrival must raise
# them; no step is lost or repeated; the weights at the end are those of one process. The page shows it all.
# HOMES=lent: the homes are not emulated; each worker is told its rates (join --rate-up, --rate-down).
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../swarm/lib.sh"
command -v curl >/dev/null || { echo "skipped: curl is not installed" >&2; exit 77; }
SPARES=0

make_corpus
# Every home has 12 Mb/s up and 15 Mb/s down, and gradients have half the bytes of activations. So stage 0 sends
# activations at 12 Mb/s per replica, and stage 1 receives them at 15: with 1+1, 2+1, 2+2, 3+2 and 3+3 replicas the
# wires carry 12, 15, 24, 30 and 36 Mb/s. Were both alike, the third and the fifth worker could bring nothing. 48
# groups of one microbatch each: two and three replicas share them evenly.
cat >run.yaml <<END
model: {width: 64, layers: 2, heads: 2, ffn: 32, context: 64}
data: {train: train.bin, tokenizer: tokenizer.json}
train: {steps: 100000, batch_tokens: 24576, save_every: 0, schedule: constant, warmup: 0}
stages: {count: 2, microbatch: 8, groups: 48, schedule: 1f1b-window}
device: {threads: 1}
link: {codec: {variant: fp32, grad_bits: 16}, deadline: 60s, emulate: {up: 12mbit, down: 15mbit}}
END

# rates FOLDER FROM: tokens per second of the steps after FROM.
rates() {
    sed -n 's/^{"step":\([0-9]*\),.*"tokens_per_s":\([0-9.e+]*\).*/\1 \2/p' "$1/metrics.jsonl" | awk -v from="$2" '$1 > from { print $2 }'
}
median() {
    sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}
# computes FOLDER N: N workers compute, and the stages have got ready since the last one came.
computes() {
    [ "$(jq '[.workers[] | select(.stage >= 0)] | length' "$1/swarm.json" 2>/dev/null || echo 0)" -ge "$2" ] &&
        awk '/becomes a further replica/ { ready = 0 } /all stages ready/ { ready = 1 } END { exit !ready }' "$1/events.log"
}
# page PATH: what the page answers, in state.json.
page() {
    curl -sS -m 20 "$origin$1" >state.json
}

unlimited="--set link.emulate.up=0 --set link.emulate.down=0"
lent= homes=
[ "${HOMES:-emulated}" != lent ] || { lent="--rate-up 12mbit --rate-down 15mbit" && homes=$unlimited; }
host_begin grown run.yaml --page 127.0.0.1:0 $homes
wait_for_text "$HOST_LOG" '^page: '
origin=$(sed -n 's|^page: \(.*\)/$|\1|p' "$HOST_LOG")
join_begin grown 1 $lent
for n in 2 3 4 5 6; do
    join_begin grown $n $lent
    wait_until "$n workers compute" computes grown "$n"
    from=$(($(steps_in grown) + 1)) # that step may have begun before
    wait_until "steps with $n workers" has_reached_step grown $((from + 4))
    page /api/v1/state
    replicas=$(jq -r '[.swarm.workers[] | select(.stage >= 0)] | group_by(.stage) | map(length) | join(",")' state.json)
    page /api/v1/history
    shown=$(jq -r ".tokens_per_s[-1]" state.json)
    runs plan run.yaml --json --gflops 10 --set "stages.replicas=[$replicas]"
    echo "$n $replicas $(rates grown "$from" | median) $(sed 's/.*"tokens_per_s": \([0-9.e+]*\).*/\1/' "$OUT") $shown"
done >table
kill -INT "$HOST"
host_ends 130 grown
awk '{ printf "%d workers, %s replicas: %.0f tokens/s", $1, $2, $3
       if (NR > 1) printf " (%.2f times the one before)", $3 / last
       printf ", planned %.0f, on the page %.0f\n", $4, $5
       last = $3 }' table
steps=$(steps_in grown)
runs train run.yaml --out straight $unlimited --set "train.steps=$steps"
grep 'all stages ready' grown/events.log | grep -vE 'ready at step 0$|stage none restored .*; 0 stage-steps' >back
[ ! -s back ] || fail "it went back: $(cat back)"
same_metrics straight grown
same_weights straight grown
awk 'NR > 1 && $3 < 1.05 * last { exit 1 } { last = $3 }' table || fail "an arrival did not raise tokens/s: $(tr '\n' ';' <table)"
grep -E 'workers compute|should bring' grown/events.log
