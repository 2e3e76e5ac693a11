#!/bin/sh
# data.sh - training data as people have it: patterns, raw token files, weighted mixtures. The same tokens
# must give the same bits, however they are stored, divided among stages or resumed.
. "$(dirname "$0")/../lib.sh"

make_corpus
make_run run.yaml 2 10
runs train run.yaml --out plain

# The shard without its header is what nanoGPT writes.
tail -c +1025 train.bin >raw.bin
runs train run.yaml --out raw --set data.train=raw.bin --set data.format=uint16
same_metrics plain raw
same_weights plain raw
refuses 3 'data.train: .*raw.bin: not a token shard .*data.format to uint16' train run.yaml --out x \
    --set data.train=raw.bin
head -c 1001 raw.bin >odd.bin
refuses 3 'odd.bin: 1001 bytes are not a whole number of 16-bit token ids' train run.yaml --out x \
    --set data.train=odd.bin --set data.format=uint16
refuses 3 'raw.bin: token [0-9]+ has id [0-9]+, outside the vocabulary of 40' train run.yaml --out x \
    --set data.train=raw.bin --set data.format=uint16 --set data.tokenizer= --set data.valid= --set model.vocab=40
rm -rf x

# A pattern is its files in the order of their names, a mixture draws by weight.
runs tokenize --tokenizer tokenizer.json --out many.bin --shard-tokens 900 text.txt
runs train run.yaml --out pattern --set 'data.train=many-*.bin'
runs train run.yaml --out manifest --set data.train=many.json
same_metrics manifest pattern
refuses 3 'data.train: .*gone-\*.bin: no file matches' train run.yaml --out x --set 'data.train=gone-*.bin'

head -n 60 text.txt >other.txt
runs tokenize --tokenizer tokenizer.json --out other.bin other.txt
sed 's/train: train.bin/train: [{path: "many-*.bin", weight: 3}, {path: other.bin, weight: 1}]/' run.yaml >mix.yaml
runs train mix.yaml --dry-run
says "$OUT" '^sources +75.0% .*/many-\*.bin \(0.0[0-9]M tokens\), 25.0% .*/other.bin'
runs train mix.yaml --out mixed
says "$ERR" 'training data: 75.0% .*many'
! cmp -s mixed/metrics.jsonl plain/metrics.jsonl || fail "the mixture had no effect"
runs train mix.yaml --out mixed-two --set stages.count=2
same_metrics mixed mixed-two
same_weights mixed mixed-two
runs train mix.yaml --out mixed-again --set device.threads=2 --set train.steps=10
same_weights mixed mixed-again
# A checkpoint of step 4 goes on with the same tokens.
cp -r mixed resumed
rm -rf resumed/checkpoints/0000001*
runs train mix.yaml --out resumed --resume
same_metrics mixed resumed
same_weights mixed resumed
refuses 2 'data.valid: .*its sources have no weights' train run.yaml --out x --set data.valid=train.bin:2,other.bin:1
refuses 2 'data.train: .*1 of 2 sources have a weight' train run.yaml --out x --set data.train=train.bin:2,other.bin
wait_all_exited
