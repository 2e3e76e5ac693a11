#!/bin/sh
# generate.sh - texts of several prompts at once: the same as alone, in order, with every way to end one; and
# refusals of flags and files.
. "$(dirname "$0")/../lib.sh"

make_corpus
make_run run.yaml 2 60
runs train run.yaml --out one
runs train run.yaml --out two --set stages.count=2 --set link.codec.name=strait --set link.codec.variant=context \
    --set link.codec.keep=8 --set model.table_rows=64

# Each text is the one that the prompt gets alone, whatever the batch, also behind a boundary with memory. The texts
# are longer than the context of 16.
printf 'the sea was\nsmall boat\n\nrocks where birds sang of storms long gone while men drew\n' >prompts.txt
printf '{"prompt": "the sea was"}\n{"prompt": "small boat"}\n' >prompts.jsonl
for model in one two; do
    runs generate $model -p "the sea was" -n 30 --seed 3 --json
    cp "$OUT" alone
    runs generate $model -p "small boat" -n 30 --seed 3 --json
    cat "$OUT" >>alone
    runs generate $model -p "rocks where birds sang of storms long gone while men drew" -n 30 --seed 3 --json
    cat "$OUT" >>alone
    for batch in 1 2 32; do
        runs generate $model --prompts prompts.txt -n 30 --seed 3 --json --batch $batch
        cmp "$OUT" alone || fail "$model: texts of batches of $batch differ from those alone"
    done
    runs generate $model --prompts prompts.jsonl -n 30 --seed 3 --json
    head -n 2 alone | cmp - "$OUT" || fail "$model: prompts of JSON Lines give other texts"
done

# The beginning of a prompt that is longer than the context is not read, which a note says.
runs generate one -p "the sea" -n 3
! grep -q note "$ERR" || fail "a short prompt got a note"
runs generate one -p "the sea" -p "$(head -n 1 text.txt)$(head -n 1 text.txt)" -n 3
says "$ERR" '^note: prompt 2 has [0-9]+ tokens, more than the model.s context of 16: only the last 8 are read$'
[ "$(wc -l <"$ERR")" -eq 1 ] || fail "expected one note"

# As text: in order, with headings where there are several; the prompt is left out on request.
runs generate one -p "the sea" -p "small" -n 5 --seed 2
[ "$(grep -c '^== prompt [12] ==$' "$OUT")" -eq 2 ] || fail "expected two headings"
says "$OUT" '^the sea' '^small'
runs generate one -p "the sea" -n 5 --seed 2 --no-prompt
says "$OUT" '^ '
grep -q '==' "$OUT" && fail "one prompt has no heading"

# Limits: the same seed gives the same text, top-k 1 is greedy, a tiny top-p and a min-p of 1, too.
runs generate one -p "the sea" -n 20 -t 0
cp "$OUT" greedy
for limit in "--top-k 1" "--top-p 0.000001" "--min-p 1"; do
    # shellcheck disable=SC2086
    runs generate one -p "the sea" -n 20 -t 1 $limit
    cmp -s "$OUT" greedy || fail "$limit is not greedy"
done
runs generate one -p "the sea" -n 20 -t 0 --repetition-penalty 5
cmp -s "$OUT" greedy && fail "a penalty changed nothing"

# A stop string ends the text before it, wherever tokens divide it.
word=$(tr ' ' '\n' <greedy | sed -n 5p)
runs generate one -p "the sea" -n 20 -t 0 --stop "$word" --json
says "$OUT" '"finish_reason": "stop"'
grep -q "$word" "$OUT" && fail "the stop string is in the text"
runs generate one -p "the sea" -n 20 -t 0 --json
says "$OUT" '"tokens": 20, "finish_reason": "length"'
runs generate one -p "the sea" -n 20 --keep-going --time
says "$ERR" '^20 tokens, [0-9.]+ per second \(cpu: '
runs generate one -p "the sea" -n 0 --json
says "$OUT" '"text": "", "tokens": 0'

# Text appears as it is sampled: the first bytes are there while the last token is still to come.
begin generate one -p "the sea" -n 5000000 --keep-going
await "the first text" test -s "$OUT"
kill -0 "$STARTED" 2>/dev/null || fail "5,000,000 tokens ended at once"
kill "$STARTED"

refuses 2 "top-p must be" generate one -p a --top-p 0
refuses 2 "min-p must be" generate one -p a --min-p 2
refuses 2 "repetition penalty" generate one -p a --repetition-penalty -1
refuses 2 "stop string of 0 bytes" generate one -p a --stop ""
refuses 2 "either --prompt or --prompts" generate one -p a --prompts prompts.txt
refuses 2 "--batch 0" generate one -p a --batch 0
refuses 2 "abacus" generate one -p a --device abacus
refuses 2 "precision 'fp8'" generate one -p a --precision fp8
: >none.txt
refuses 3 "no prompts" generate one --prompts none.txt
printf '{"text": "x"}\n' >wrong.jsonl
refuses 3 "wrong.jsonl" generate one --prompts wrong.jsonl
refuses 3 "missing.txt" generate one --prompts missing.txt

# eval takes the same devices and precisions.
runs eval one --data train.bin --json --device cpu --precision bf16
cp "$OUT" half
runs eval one --data train.bin --json --device cpu
if cmp -s "$OUT" half; then fail "bf16 gives the loss of fp32"; fi
refuses 2 "abacus" eval one --data train.bin --device abacus
