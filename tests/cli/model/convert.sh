#!/bin/sh
# convert.sh - import and export of Hugging Face folders: a model that was trained here goes out and
# comes back, and every kind of broken folder is refused with one line and leaves nothing behind.
HF=$(cd "$(dirname "$0")/../../golden/hf" && pwd)
. "$(dirname "$0")/../lib.sh"

make_corpus
make_run run.yaml
runs train run.yaml --out good
runs eval good --data train.bin --json
loss=$(sed -n 's/.*"loss": \([0-9.]*\).*/\1/p' "$OUT")
before=$(sum_of good)

# The circle: the weights are the same bits, and so is the loss.
runs export good --to hf --out hf
runs import hf --out back
runs eval back --data train.bin --json
grep -q "\"loss\": $loss," "$OUT" || fail "another loss than $loss after export and import"
for name in config.json model.safetensors tokenizer.json tokenizer_config.json generation_config.json README.md; do
    [ -s hf/$name ] || fail "the export has no $name"
done
grep -q 'validation loss' hf/README.md || fail "the card has no loss"
runs export good --to hf --out small --dtype bf16 --shard-bytes 20000
[ -s small/model.safetensors.index.json ] || fail "small shards have no index"
runs import small --out small-back
runs generate small-back --prompt the --tokens 3
for type in f32 f16 bf16 q8_0; do
    runs export good --to gguf --out good-$type.gguf --dtype $type
    [ "$(head -c 4 good-$type.gguf)" = GGUF ] || fail "$type: not a GGUF file"
done
[ "$(wc -c <good-f32.gguf)" -gt "$(wc -c <good-q8_0.gguf)" ] || fail "q8_0 is not smaller than f32"
cp -r good normalised
sed 's/"normalizer": null/"normalizer": {"type": "NFC"}/' good/tokenizer.json >normalised/tokenizer.json
runs export normalised --to gguf --out nfc.gguf
cmp -s nfc.gguf good-f16.gguf || fail "NFC changed the file"
sed 's/"normalizer": null/"normalizer": {"type": "NFKC"}/' good/tokenizer.json >normalised/tokenizer.json
refuses 2 'the tokenizer has a normalizer other than NFC' export normalised --to gguf --out x
refuses 2 'good-f32.gguf exists' export good --to gguf --out good-f32.gguf
refuses 2 'dtype "q4_0" is not known: expected f32, f16, bf16 or q8_0' export good --to gguf --out x --dtype q4_0
runs train run.yaml --out capped --set train.steps=1 --set model.softcap=15
refuses 2 'llama.cpp has no architecture for this model' export capped --to gguf --out x
[ ! -e x ] && [ ! -e x.tmp ] || fail "a refused export left a file"
[ "$(sum_of good)" = "$before" ] || fail "an export changed the run"

# A slash at the end of a name, as a shell completes it; folders of the target are made.
runs export good/checkpoints/00000010/ --to hf --out sub/slash//
cmp hf/tokenizer.json sub/slash/tokenizer.json || fail "a slash behind a checkpoint loses the tokenizer"
cmp hf/model.safetensors sub/slash/model.safetensors || fail "a slash behind a checkpoint gives other weights"
runs import hf/ --out sub/slashed/
runs export good --to gguf --out new/good.gguf
cmp -s new/good.gguf good-f16.gguf || fail "another GGUF file in a new folder"
refuses 2 'new/other/ names a folder' export good --to gguf --out new/other/
for command in "generate hf -p a" "eval hf --text text.txt" "export hf --to gguf --out x"; do
    # shellcheck disable=SC2086
    refuses 3 'hf: contains no checkpoint, but a config.json .*: import it first' $command
done

# Until all is complete, a folder is written beside its target: what a killed conversion left there is removed, and
# what else has that name stays.
mkdir mine.tmp left.tmp
echo keep >mine.tmp/notes
touch left.tmp/.lock left.tmp/model.safetensors
for command in "import hf" "export good --to hf"; do
    # shellcheck disable=SC2086
    refuses 2 'mine.tmp is in the way' $command --out mine
    [ "$(cat mine.tmp/notes)" = keep ] || fail "$command removed a file of the user"
    # shellcheck disable=SC2086
    runs $command --out left
    [ ! -e left.tmp ] && [ ! -e left/.lock ] || fail "$command left its lock"
    mv left "left-$(echo "$command" | tr -d ' ')" && mkdir left.tmp && touch left.tmp/.lock
done
cmp left-exportgood--tohf/model.safetensors hf/model.safetensors || fail "another export beside what was left"

# A checkpoint is checked while it is converted: of a damaged one nothing remains, and the one before is taken.
cp -r good bad
printf '\377\377' | dd of=bad/checkpoints/00000010/stage-0.safetensors bs=1 seek=20000 conv=notrunc 2>/dev/null
refuses 3 'stage-0.safetensors has changed' export bad/checkpoints/00000010 --to hf --out x
[ ! -e x ] && [ ! -e x.tmp ] || fail "the export of a damaged checkpoint left a folder"
runs export bad --to hf --out bad-hf
says "$ERR" 'using step 8, the newest undamaged checkpoint'
runs export good/checkpoints/00000008 --to hf --out whole-hf
cmp bad-hf/model.safetensors whole-hf/model.safetensors || fail "an export has tensors of a damaged checkpoint"

# What subspace trained in coordinates is multiplied out: the same loss, up to rounding.
subspace="--set stages.count=2 --set stages.split=2,2 --set link.codec.name=subspace --set link.codec.bits=32
    --set link.codec.keep=8 --set model.layers=4 --set link.codec.grassmann_every=4"
loss_of() {
    runs eval "$1" --data train.bin --json
    sed -n 's/.*"loss": \([0-9.]*\).*/\1/p' "$OUT"
}
for variant in factored full; do
    # shellcheck disable=SC2086 # several flags
    runs train run.yaml --out $variant $subspace --set link.codec.variant=$variant --set train.optimizer=adamw-rows
    runs export $variant --to hf --out $variant-hf
    runs import $variant-hf --out $variant-back
    printf '%s %s\n' "$(loss_of $variant)" "$(loss_of $variant-back)" |
        awk '{ exit !($1 > 0 && ($1 - $2) ^ 2 < 1e-8) }' || fail "$variant: another loss after export and import"
done
# shellcheck disable=SC2086
runs train run.yaml --out lossy $subspace --set link.codec.variant=full --set train.steps=1 \
    --set link.codec.without_fixed=true
refuses 2 'link.codec.without_fixed loses a part of its stream' export lossy --to hf --out x

# A run starts from a run, from one checkpoint or from a folder of Hugging Face: the steps are the same.
losses_of() {
    sed -n 's/.*"step":\([0-9]*\),"loss":\([0-9.]*\).*/\1 \2/p' "$1"/metrics.jsonl
}
runs train run.yaml --out again --set train.init_from=good --set train.steps=3
grep -q 'weights from .*good: 21 tensors taken, 0 new, 0 left over' "$ERR" "$OUT" || fail "no count of tensors"
runs train run.yaml --out from-hf --set train.init_from=hf --set train.steps=3
runs train run.yaml --out from-step --set train.init_from=good/checkpoints/00000010 --set train.steps=3 \
    --set stages.count=2
[ "$(losses_of again | wc -l)" = 3 ] || fail "no losses of three steps"
for name in from-hf from-step; do
    [ "$(losses_of again)" = "$(losses_of $name)" ] || fail "$name: other losses than from the run"
done
[ ! -e again/initial.tmp ] || fail "the initial values were left behind"

# It takes the tokenizer, and what is beside it, unless the data have another one.
for source in hf back; do
    runs train back/run.yaml --out with-$source --set train.init_from=$source --set data.train=train.bin \
        --set train.steps=1 --set train.batch_tokens=128 --set data.tokenizer=
    for name in tokenizer.json tokenizer_config.json generation_config.json; do
        cmp $source/$name with-$source/$name || fail "train.init_from=$source loses $name"
    done
done
runs generate with-back --prompt the --tokens 3
runs tokenizer train --vocab 290 --out second.json text.txt
runs tokenize --tokenizer second.json --out other.bin text.txt
refuses 3 'other.bin.*tokenizer' train back/run.yaml --out x --set train.init_from=back --set data.train=other.bin
runs train back/run.yaml --out foreign --set train.init_from=hf --set data.train=other.bin --set data.tokenizer= \
    --set train.steps=1 --set train.batch_tokens=128
says "$ERR" 'the data were tokenized with another tokenizer than .*hf/tokenizer.json'
[ ! -e foreign/tokenizer.json ] || fail "the tokenizer of a source was taken for data of another one"
runs train run.yaml --out again --resume --set train.init_from=nothere --set train.steps=4
runs train run.yaml --out wider --set train.init_from=good --set train.steps=2 --set model.qkv_bias=true
grep -q '21 tensors taken, 2 new (blocks.0.attention.qkv_bias, blocks.1.attention.qkv_bias)' "$ERR" "$OUT" ||
    fail "no names of new tensors"
runs train run.yaml --out shorter --set train.init_from=good --set train.steps=2 --set model.layers=1
grep -q '12 tensors taken, 0 new, 9 left over (blocks.1.attention.k, ' "$ERR" "$OUT" ||
    fail "no names of tensors that are left over"
refuses 3 'train.init_from .*: no tensor has the name and shape' train run.yaml --out x --set train.init_from=good \
    --set model.width=16
[ ! -e x ] || fail "a run without weights left a folder"
refuses 3 'nothere' train run.yaml --out x --set train.init_from=nothere

# A subspace is taken with its weights, bit for bit, over another cut, but only by a run of the same subspace.
# same_subspace A B: weights and basis are the same; moments and counters are not compared.
same_subspace() {
    for run in "$1" "$2"; do
        weights_of "$run" | sed -E 's/^boundary.*\.basis/basis/' |
            grep -E '^(basis|embed.table|head.[a-z]+|blocks.[0-9].[a-z]+.[a-z]+) ' |
            sort -u >"$SCRATCH/taken.${run%%/*}"
    done
    [ "$(grep -c . "$SCRATCH/taken.$1")" -eq 40 ] && [ "$(grep -c '^basis' "$SCRATCH/taken.$1")" -eq 1 ] ||
        fail "$1: not the weights of four layers, and a basis"
    cmp "$SCRATCH/taken.$1" "$SCRATCH/taken.${2%%/*}" || fail "$2 does not begin with the weights of $1"
}
for variant in factored full; do
    sets="$subspace --set link.codec.variant=$variant --set train.init_from=$variant"
    # shellcheck disable=SC2086
    runs train run.yaml --out $variant-cut $sets --set train.optimizer=adamw-rows --set stages.count=3 \
        --set stages.split=1,1,2 --set train.steps=5 --set train.keep_checkpoints=9 --set link.codec.bits=16
    same_subspace $variant $variant-cut/checkpoints/00000000
    # shellcheck disable=SC2086
    refuses 2 'blocks.2.* was in the last stage of the source: .* at layer 2 or before' train run.yaml --out x $sets \
        --set train.optimizer=adamw-rows --set stages.count=4 --set stages.split=1,1,1,1
done
# shellcheck disable=SC2086
refuses 2 'another subspace: .*variant=full, link.codec.keep=8, .*train.seed=' train run.yaml --out x $sets \
    --set train.optimizer=adamw-rows --set link.codec.keep=4
# shellcheck disable=SC2086
refuses 2 'codec subspace keeps the weights in a subspace, where those' train run.yaml --out x $sets \
    --set train.init_from=good --set train.optimizer=adamw-rows
[ ! -e x ] || fail "a run that could not start from its source left a folder"

# Frozen parameters keep their bits; a pattern without a match is a typing error.
runs train run.yaml --out frozen --set train.init_from=good --set train.steps=2 --set 'train.freeze=embed.*,*.norm'
for name in embed.table head.norm blocks.1.mlp.norm; do
    [ "$("$HELPER" frozen | grep "^$name ")" = "$("$HELPER" good | grep "^$name ")" ] || fail "$name was trained"
done
[ "$("$HELPER" frozen | grep "^head.out ")" != "$("$HELPER" good | grep "^head.out ")" ] || fail "head.out was not trained"
refuses 2 'train.freeze: no parameter has a name like "embd' train run.yaml --out x --set 'train.freeze=embd.*'

# The command line.
refuses 2 'export needs --to hf, --to gguf or --to peft' export good --out x
refuses 2 'export needs --out PATH' export good --to hf
refuses 2 'dtype "int3" is not known' export good --to hf --out x --dtype int3
refuses 2 'hf exists' export good --to hf --out hf
refuses 2 'import needs --out RUN' import hf
refuses 2 'back exists' import hf --out back
refuses 2 'a context of 4096 tokens is more than the 64' import "$HF/llama2" --out x --context 4096
refuses 3 'nothere' export nothere --to hf --out x

# broken NAME: a fresh copy of a folder, named `broken`.
broken() {
    rm -rf broken
    cp -r "$HF/$1" broken
    chmod -R u+w broken
}

# refuses_folder TEXT: checks that `broken` is refused and that no run's folder is left.
refuses_folder() {
    refuses 3 "$1" import broken --out x
    [ ! -e x ] || fail "a refused import left a folder: $1"
}

# edit FILE OLD NEW: replaces a text in a file of `broken`.
edit() {
    sed "s/$2/$3/" broken/"$1" >edited && mv edited broken/"$1"
}

broken qwen2 && rm broken/model.safetensors.index.json
refuses_folder 'broken: has neither model.safetensors nor model.safetensors.index.json'
broken qwen2 && rm broken/model-00002-of-00004.safetensors
refuses_folder 'model-00002-of-00004.safetensors: is missing, but model.safetensors.index.json lists it'
broken qwen2 && edit model.safetensors.index.json 'model-00001-of' '..\/model-00001-of'
refuses_folder 'index.json: tensor ".*" is not in a .safetensors file of this folder'
broken qwen2 && echo '{' >broken/model.safetensors.index.json
refuses_folder 'index.json: '
broken llama2 && edit config.json '"intermediate_size": 48' '"intermediate_size": 64'
refuses_folder 'gate_proj.weight" is \[48 x 32\], but config.json means \[64 x 32\]'
broken llama2 && edit config.json '"num_hidden_layers": 2' '"num_hidden_layers": 3'
refuses_folder 'tensor "model.layers.2.input_layernorm.weight" is missing'
broken llama2 && edit config.json '"num_hidden_layers": 2' '"num_hidden_layers": 1'
refuses_folder 'tensor "model.layers.1.*" has no place in a llama model'
broken llama2 && head -c 60000 "$HF/llama2/model.safetensors" >broken/model.safetensors
refuses_folder 'truncated'
broken llama2 && : >broken/model.safetensors
refuses_folder 'model.safetensors: .*too few for a safetensors file'
broken llama2 && printf '\377\377\377\377' | dd of=broken/model.safetensors bs=1 conv=notrunc status=none \
    seek=$(($(wc -c <broken/model.safetensors) - 4))
refuses_folder 'tensor ".*": value [0-9]* is not finite'
broken llama2 && rm broken/config.json
refuses_folder 'broken: has no config.json'
broken llama2 && edit config.json '"llama"' '"gpt_neox"'
refuses_folder 'model_type "gpt_neox" is not known'
broken llama2 && edit config.json LlamaForCausalLM LlamaForTokenClassification
refuses_folder 'architecture "LlamaForTokenClassification" is not known'
broken llama2 && rm broken/model.safetensors && : >broken/pytorch_model.bin
refuses_folder 'pytorch_model.bin: pickle files are not read, because they can run code'
mv broken/pytorch_model.bin broken/pytorch_model-00002-of-00003.bin
refuses_folder 'pytorch_model-00002-of-00003.bin: pickle files are not read'
broken llama2 && rm broken/model.safetensors && mkfifo broken/model.safetensors
refuses_folder 'model.safetensors: not a regular file'
broken llama2 && mv broken/config.json broken/adapter_config.json
refuses_folder 'broken: has only adapters'
broken mistral && edit config.json '"sliding_window": null' '"sliding_window": 32'
refuses_folder 'attention sees 32 tokens .*: import it with --context 32'
runs import broken --out window --context 32
refuses 3 'nothere: has no config.json' import nothere --out x

# Files of earlier versions of transformers: rope_theta alone, torch_dtype.
broken llama2 && sed '/"rope_parameters"/,/}/d' broken/config.json >edited && mv edited broken/config.json
edit config.json '"dtype"' '"torch_dtype"'
edit config.json '"hidden_act"' '"rope_theta": 10000.0, "rope_scaling": null, "hidden_act"'
runs import broken --out older
[ "$("$HELPER" older)" = "$(strait import "$HF/llama2" --out today 2>/dev/null && "$HELPER" today)" ] ||
    fail "the two spellings give different weights"

# A tokenizer that cannot be read is left out; the weights are not.
broken qwen2 && edit tokenizer.json '"type": "BPE"' '"type": "Unigram"'
runs import broken --out no-words
grep -q 'the tokenizer is left out' "$ERR" "$OUT" || fail "no note about the tokenizer"
[ ! -e no-words/tokenizer.json ] || fail "a tokenizer that cannot be read was copied"
