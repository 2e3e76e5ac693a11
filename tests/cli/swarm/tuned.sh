#!/bin/sh
# tuned.sh - a swarm fine-tunes: it continues what "strait train" began with train.init_from, with adapters and
# on packed documents, and computes the same bits, also when a worker is lost.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/lib.sh"

make_corpus
make_run run.yaml 2 24
runs train run.yaml --out base --set train.steps=4
yes '{"prompt": "the sea was", "completion": " calm and a small boat"}
{"messages": [{"role": "user", "content": "where?"}, {"role": "assistant", "content": "past rocks"}]}' |
    head -n 60 >chat.jsonl
runs tokenize --tokenizer tokenizer.json --format chat --out chat.bin chat.jsonl
sets="--set stages.count=2 --set train.init_from=base --set train.lora.rank=4 --set data.train=chat.bin
    --set model.context=64 --set data.valid_tokens=192 --set data.pack=true --set data.valid=chat.bin --set link.emulate.delay=10ms --set train.keep_checkpoints=9"
runs train run.yaml --out straight $sets

refuses 2 'train.init_from: the workers of a swarm.*strait host --resume' host run.yaml --out fresh --keys keys-host $sets
cp -r straight first
for step in 04 08 12 16 20 24; do rm -r first/checkpoints/000000$step; done # the weights of the source alone
refuses 2 'first: the workers of a swarm' host run.yaml --out first --resume --keys keys-host $sets

mkdir swarm
cp -r straight/. swarm
for step in 08 12 16 20 24; do rm -r swarm/checkpoints/000000$step; done
head -n 4 straight/metrics.jsonl >swarm/metrics.jsonl
host_begin swarm run.yaml --resume $sets
for i in 3 4; do join_begin swarm $i; done
wait_steps swarm 12
kill_join 3
join_begin swarm 5
host_ends 0 "a swarm with adapters"
says swarm/events.log 'stage [01]: connection lost'
same_metrics straight swarm
same_weights straight swarm
wait_all_exited
