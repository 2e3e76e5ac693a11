#!/bin/sh
# compare.sh - comparisons that cannot mislead: models, codecs, seeds and what else differs are shown; means
# and ranges over seeds; axes, images and numbers; what a codec changes is said before a run begins.
. "$(dirname "$0")/lib.sh"

make_corpus
cat >run.yaml <<END
model: {width: 32, layers: 2, heads: 2, ffn: 48, context: 16}
data: {train: train.bin, valid: train.bin, tokenizer: tokenizer.json, valid_tokens: 64}
train: {steps: 10, batch_tokens: 128, optimizer: muon, valid_every: 5}
stages: {microbatch: 1, count: 2}
link: {codec: {name: strait, keep: 8, bits: 4}, transport: inproc}
device: {threads: 1}
END

# A codec that changes the model and the rates says so; overriding it drops what belongs to it.
runs train run.yaml --out coded
says "$ERR" '^note: codec strait changes the model: 0[.][0-9]+M parameters, 0[.]04M without it; it sets model.conv=4, .*train.learning_rate=0.06'
runs train run.yaml --out dense1 --set link.codec.name=none
says "$ERR" '^note: link.codec.name was overridden: dropped link.codec.keep, link.codec.bits of the run file$'
! grep -q 'changes the model' "$ERR" || fail "no codec is said to change the model"
runs train run.yaml --out other --set link.codec.name=int8 --set link.codec.bits=8
says "$ERR" 'dropped link.codec.keep, link.codec.bits' # the file's bits; the override's are kept
runs train run.yaml --out same --set link.codec.name=strait --set train.steps=1
! grep -q 'dropped' "$ERR" || fail "the same codec dropped its own keys"
for seed in 2 3; do runs train run.yaml --out dense$seed --set link.codec.name=none --set train.seed=$seed; done

# The table, the mean over seeds, and what differs.
runs compare dense1 dense2 dense3 coded --plot curves.svg --against tokens
says "$OUT" '^dense1 +10 +0[.]04M +0[.]1[0-9]* +none +1 ' '^dense2 .* none +2 ' '^coded +10 +0[.][1-9][0-9]M .* strait +1 ' \
    '^dense1 and runs of other seeds, 3 in all: mean loss [0-9.]+, range [0-9.]+ to [0-9.]+$' \
    '^coded differs in: model.conv 0 -> 4, .*train.learning_rate 0.02 -> 0.06.*link.codec.name none -> strait'
says curves.svg '>dense1, mean of 3 seeds</text>' '>coded</text>' '<polygon .*fill-opacity' '>tokens</text>' '>1000</text>'
mean=$(jq -s 'map(select(.valid_loss)) | last.valid_loss' dense1/metrics.jsonl dense2/metrics.jsonl dense3/metrics.jsonl >/dev/null
    for i in 1 2 3; do jq -s 'map(select(.valid_loss)) | last.valid_loss' dense$i/metrics.jsonl; done | jq -s 'add / 3')
runs compare dense1 dense2 dense3 coded --json
jq -es --argjson mean "$mean" '(.[0].seeds == 3) and ((.[0].mean_loss - $mean) | fabs < 1e-6) and (.[3].seeds == 1) and
    (.[0].lowest_loss <= .[1].valid_loss) and (.[3].codec == "strait") and (.[3].parameters > 2 * .[0].parameters) and
    (.[3].flops_per_token > .[0].flops_per_token) and (.[0].differs_in == "") and (.[3].differs_in | contains("model.conv"))' \
    "$OUT" >/dev/null || fail "compare --json: $(cat "$OUT")"

# A folder of an earlier version, whose record has rates and names no codec, was trained with none.
cp -r dense1 old
sed -i 's/^    name: "none"$/    # name: "none"/; s/^    # rate: .*/    rate: 80mbit/' old/run.yaml
runs compare coded old
says "$OUT" '^old +10 +0[.]04M .* none +1 '

# Training losses, every axis, and three kinds of files by their names.
for axis in step tokens seconds traffic bytes; do runs compare dense1 coded --training --plot "$axis.png" --against $axis; done
says "$OUT" 'until the training loss fell to'
[ "$(head -c 4 step.png | od -An -tx1 | tr -d ' ')" = 89504e47 ] || fail "a .png file is not a PNG image"
runs compare dense1 coded --plot all.csv
[ "$(wc -l <all.csv)" -eq 21 ] || fail "all.csv has $(wc -l <all.csv) lines"
says all.csv '^run,seed,step,tokens,seconds,bytes,loss,valid_loss$' '^"dense1",1,10,1280,[0-9.e-]+,[1-9][0-9]*,[0-9.]+,[0-9.]+$' '^"coded",1,9,1152,.*,[0-9.]+,$'
refuses 2 'expected a name that ends in .svg, .png or .csv' compare dense1 --plot losses.jpg

# A run without a validation is left out with a note, and compared by its training loss.
runs train run.yaml --out young --set link.codec.name=none --set data.valid=
runs compare dense1 young
says "$ERR" '^note: young has no validation yet and is left out; --training compares training losses$'
! grep -q '^young ' "$OUT" || fail "a run without a validation is in the table"
runs compare dense1 young --training
says "$OUT" '^young ' '^young differs in: data.valid'

# A terminal that is too narrow for the table gets a line per figure.
if command -v script >/dev/null; then
    script -qec "stty cols 80; env STRAIT_CLI=$SCRATCH $STRAIT compare $(ls -d */metrics.jsonl | head -n 2 | xargs -n 1 dirname | tr '\n' ' ')" /dev/null >narrow </dev/null
    says narrow '^run  ' '^loss +[0-9.]+ +[0-9.]+' '^params '
    sed '/differs in/,$d' narrow | awk 'length($0) > 81 { exit 1 }' || fail "the table is wider than 80 columns"
fi
