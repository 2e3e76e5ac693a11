#!/bin/sh
# recovery.sh - measures what the loss of a worker costs: kill -9 of a middle stage in a step, with a spare.
# Prints the stage-steps that are computed again and the time from the loss to the next new step. Works with
# programs that roll all stages back, too, to compare.
#
#   STAGES="4 8" ROUNDS=3 STEP=60   numbers of stages, runs of each, the step in which the worker is killed
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/lib.sh"
STEP=${STEP:-60}

make_corpus
cat >run.yaml <<END
model: {width: 128, layers: 8, heads: 4, ffn: 256, context: 32}
data: {train: train.bin, valid: train.bin, tokenizer: tokenizer.json, valid_tokens: 64}
train: {steps: 1000, batch_tokens: 512, save_every: 1000, valid_every: 1000, warmup: 10}
stages: {microbatch: 4}
link: {codec: {name: strait, keep: 8}, deadline: 60s, emulate: {rate: 60mbit, delay: 15ms}}
device: {threads: 1}
END

# lost_ms FOLDER: prints when the loss was noticed.
lost_ms() {
    date +%s%3N -d "$(sed -n 's/^\([^ ]*\) .*connection lost$/\1/p' "$1/events.log" | head -n 1)"
}

# recomputed FOLDER STAGES: prints the stage-steps that are computed again.
recomputed() {
    grep 'generation 2: all stages ready' "$1/events.log" | awk -v n="$2" -v at="$STEP" '
        { for (i = 1; i <= NF; i++) if ($i == "step" && !is_found) { is_found = 1; step = $(i + 1) + 0 } }
        /replay:/ { sub(/.*; /, ""); print $1 + 0; exit }
        { print n * (at - step) }'
}

for stages in ${STAGES:-4 8}; do
    for round in $(seq "${ROUNDS:-3}"); do
        name=lost-$stages-$round
        host_begin $name run.yaml --set stages.count=$stages --rebalance 0
        for i in $(seq "$stages"); do join_begin $name $name-$i --fault "forward:$((stages / 2)):$STEP"; done
        wait_joined $name "$stages"
        join_begin $name $name-spare
        wait_until 'the loss' grep -q 'connection lost' $name/events.log
        wait_until 'a new step' has_reached_step $name $((STEP + 1))
        echo "$stages $(recomputed $name "$stages") $(($(now_ms) - $(lost_ms $name)))"
        host_kill
        for pid in $(our_processes); do kill -9 "$pid" 2>/dev/null; done
    done
done | tee results
awk '{ n[$1]++; steps[$1, n[$1]] = $2; ms[$1, n[$1]] = $3 }
    function middle(v, k,   i, j, t, m) {
        m = n[k]
        for (i = 1; i <= m; i++) for (j = i + 1; j <= m; j++) if (v[k, j] < v[k, i]) { t = v[k, i]; v[k, i] = v[k, j]; v[k, j] = t }
        return v[k, int((m + 1) / 2)]
    }
    END { for (k in n) printf "%d stages, %d runs: %d stage-steps, %.2f s to the next new step (medians)\n", k, n[k], middle(steps, k), middle(ms, k) / 1000 }' results | sort -n
