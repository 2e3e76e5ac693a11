#!/bin/sh
# outer_liars.sh - one worker of a swarm that averages (train.outer) lies: it says that others send nothing, reports
# values that are not finite, or sends a difference of NaN. Its own pipeline pays for it; the others are in every
# average and never go back.
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../lib.sh"
LIAR=$(dirname "$HELPER")/../liar/cli_liar
SPARES=0

make_corpus
make_run run.yaml 2 12
sets="--set stages.count=2 --set train.batch_tokens=256 --set train.outer.sync_every=3
    --set train.steps=30"

# with_liar FOLDER N RULES...: runs with N pipelines of two workers; the last worker, in the last pipeline, lies.
with_liar() {
    name=$1
    pipelines=$2
    shift 2
    host_begin "$name" run.yaml $sets --set "stages.replicas=$pipelines"
    for i in $(seq $((2 * pipelines - 1))); do
        join_begin "$name" $i
        wait_joined "$name" $i
    done
    env STRAIT_CLI="$SCRATCH" "$LIAR" "$@" join "$(cat "$name.invite")" --keys "keys-$name" --name liar \
        --listen 127.0.0.1:0 --threads 1 >"$name.liar" 2>&1 </dev/null &
    echo $! >"$SCRATCH/join-liar.pid"
    host_ends 0 "$name"
    grep -q '^liar: step' "$name.liar" || fail "$name: the liar did not lie: $(cat "$name.liar")"
    kill_join liar
    wait_all_exited
    ! grep 'all stages ready' "$name/events.log" | grep -vE 'ready at step 0$|stage none restored .*; 0 stage-steps' ||
        fail "$name went back: $(cat "$name/events.log")"
    sed -n 's/^{"step":\([0-9]*\).*"averaged":\(\[[0-9,]*\]\).*/\1 \2/p' "$name/metrics.jsonl" >averages
    honest=0
    [ "$pipelines" -eq 2 ] || honest=0,1
    [ "$(wc -l <averages)" -eq 10 ] && ! grep -vE "\[$honest(,$((pipelines - 1)))?\]\$" averages ||
        fail "$name: averages $(cat averages) $(cat "$name/events.log")"
    ! grep -E "w[1-$((2 * pipelines - 2))] .*left out|w[1-5] .*(banned|violation)" "$name/events.log" ||
        fail "$name: an honest worker was blamed: $(cat "$name/events.log")"
    ! grep -E '"(loss|grad_norm)":(null|"?-?[nN]a[nN])' "$name/metrics.jsonl" || fail "$name: steps were lost"
}

# It says that both others send nothing. In the end it is left out, with its mate.
with_liar missing 3 --lie reply.outer.is_complete=0 --lie reply.outer.missing=3
says missing/events.log 'liar.*: received no average: its pipeline is left out for a while'
head -n 1 averages | grep -q '\[0,1\]$' || fail "missing: $(cat averages)"

# It reports non-finite values: its pipeline skips steps, until it is left out.
with_liar nonfinite 3 --lie reply.gradients.faults.nonfinite=1
says nonfinite/events.log 'pipeline 2: liar, stage [01] reported non-finite values; the pipeline skips the step' \
    'liar.*: values that cannot be used: its pipeline is left out for a while'

# Its differences are NaN: two others reject them.
with_liar nan 3 --fill outer
says nan/events.log 'liar, stage [01]: sent a difference of its weights that is non-finite or far larger'
head -n 1 averages | grep -q '\[0,1\]$' || fail "nan: $(cat averages)"

# Of two pipelines the one whose values are rejected is not in the averages, and after three of them left out.
with_liar two 2 --fill outer
says two/events.log 'liar.*: received no average: its pipeline is left out for a while'
head -n 2 averages | grep -c '\[0\]$' | grep -qx 2 || fail "two: $(cat averages)"
