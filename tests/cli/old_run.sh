#!/bin/sh
# old_run.sh - checks that a run saved by an earlier program, before options were renamed, goes on as it
# would have there: weights, optimizer and codec state. tests/golden/run-format-1 holds its folder at
# step 4 of 8, and the losses that the earlier program then computed.
. "$(dirname "$0")/lib.sh"
golden=$(cd "$(dirname "$0")/../golden/run-format-1" && pwd)

make_corpus
cat >run.yaml <<'END'
model: {width: 4, layers: 2, heads: 1, ffn: 8, context: 16}
data: {train: train.bin, valid: train.bin, tokenizer: tokenizer.json, valid_tokens: 64}
train: {steps: 8, batch_tokens: 64, learning_rate: 0.005, save_every: 4, valid_every: 8}
stages: {microbatch: 1, count: 2}
link: {codec: {name: strait, variant: tied, keep: 2, hidden: 4, anchors: 2}, deadline: 20s}
device: {threads: 1}
END
cp -r "$golden" old
runs train run.yaml --out old --resume
jq -r 'select(.loss != null and .step > 4) | "\(.step) \(.loss)"' old/metrics.jsonl >losses
# Other processors may round the last digits differently.
paste -d ' ' losses "$golden/losses.txt" |
    awk '{ d = $2 - $4; if ($1 != $3 || d > 1e-4 || d < -1e-4) bad = 1 } END { exit bad || NR != 4 }' ||
    fail "the resumed run computes $(tr '\n' ' ' <losses), expected $(tr '\n' ' ' <"$golden/losses.txt")"
runs inspect old
says "$OUT" 'checkpoints: 4 8'

# A large vocabulary had one row per token id in every table. Such a run keeps them, although its run file leaves their
# number to the program, which gives new runs fewer.
cat >large.yaml <<'END'
model: {width: 4, layers: 2, heads: 1, ffn: 8, context: 16, vocab: 40000, anchors: true, value_tables: true}
data: {train: train.bin, tokenizer: tokenizer.json}
train: {steps: 4, batch_tokens: 64, learning_rate: 0.005, save_every: 2}
device: {threads: 1}
END
runs train large.yaml --out whole --set model.table_rows=40000
cp -r whole before
rm -r before/checkpoints/00000004
sed -i '/table_rows/d' before/run.yaml
manifest=before/checkpoints/00000002/manifest.json
jq 'del(.model.table_rows)' "$manifest" >manifest && mv manifest "$manifest"
runs train large.yaml --out before --resume
same_weights whole before
runs train large.yaml --out fewer
grep -q '^  table_rows: 6144$' fewer/run.yaml || fail "the record does not have the rows: $(grep table_rows fewer/run.yaml)"
cp -r fewer again
rm -r again/checkpoints/00000004
runs train large.yaml --out again --resume
same_weights fewer again
! grep -q table_rows "$ERR" || fail "resuming changes the rows: $(cat "$ERR")"

# Codec strait had other settings than new runs get. A run keeps them, also with a run file that names only the codec.
cat >codec.yaml <<'END'
model: {width: 16, layers: 2, heads: 1, ffn: 8, context: 16}
data: {train: train.bin, tokenizer: tokenizer.json}
train: {steps: 4, batch_tokens: 64, optimizer: muon, save_every: 2}
stages: {microbatch: 1, count: 2}
link: {transport: inproc, codec: {name: strait, keep: 7, hidden: 8, encoder: 8}}
device: {threads: 1}
END
runs train codec.yaml --out fixed --set link.codec.rule=1
cp -r fixed kept
rm -r kept/checkpoints/00000004
sed -i '/^ *rule: 1$/d' kept/run.yaml
cp -r kept same
runs train codec.yaml --out kept --resume
same_weights fixed kept
grep -q '^ *rule: 1$' kept/run.yaml || fail "the record does not have the rule: $(grep rule: kept/run.yaml)"
runs train same/run.yaml --out same --resume
same_weights fixed same

# The run file of the golden run names options by their old names: the error names the new one.
refuses 2 'train.rate was renamed: use train.learning_rate' train "$golden/run.yaml" --out other
