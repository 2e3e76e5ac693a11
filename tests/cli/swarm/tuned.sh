#!/bin/sh
# tuned.sh - a swarm fine-tunes: it begins with the weights of train.init_from, with adapters or with frozen
# weights, on packed documents, and computes the bits of "strait train", also when a worker or the host is lost.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/lib.sh"

make_corpus
make_run run.yaml 3 12
runs train run.yaml --out base --set train.steps=4
runs export base --to hf --out base-hf
yes '{"prompt": "the sea was", "completion": " calm and a small boat"}
{"messages": [{"role": "user", "content": "where?"}, {"role": "assistant", "content": "past rocks"}]}' |
    head -n 60 >chat.jsonl
runs tokenize --tokenizer tokenizer.json --format chat --out chat.bin chat.jsonl
sets="--set stages.count=2 --set data.train=chat.bin --set model.context=64 --set data.valid_tokens=192
    --set data.pack=true --set data.valid=chat.bin --set link.emulate.delay=4ms"
lora="$sets --set train.init_from=base-hf --set train.lora.rank=4"
runs train run.yaml --out adapted $lora --set train.keep_checkpoints=9
taken=$(grep -o 'base-hf: [0-9]* tensors taken.*' "$ERR") || fail "strait train does not say which tensors it took"

# A source that cannot be read, or has nothing that fits, is refused before workers are waited for; nothing is left.
mkdir broken && echo '{"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"}' >broken/config.json
for bad in nothere broken; do
    refuses 3 "$bad" host run.yaml --out fresh --keys keys-host $lora --set train.init_from=$bad
    [ ! -e fresh ] || fail "a host that could not start left $(ls -R fresh)"
done
refuses 3 'no tensor has the name and shape' host run.yaml --out fresh --keys keys-host $sets \
    --set train.init_from=base --set model.width=48
[ ! -e fresh ] || fail "a host that found no tensor to take left $(ls -R fresh)"

# Stage 0 is lost before the first checkpoint: the spare gets the first weights, from the host or from a neighbour.
host_begin swarm run.yaml $lora
for i in 3 4; do join_begin swarm $i --fault update:0:2; done
wait_joined swarm 2
join_begin swarm 5
host_ends 0 "a swarm that begins with other weights"
grep -qF "$taken" "$HOST_LOG" || fail "the host did not say: $taken"
says swarm/events.log 'stage 0: connection lost'
same_metrics adapted swarm
same_weights adapted swarm
for file in stage-0.safetensors stage-1.safetensors stage-1.state.safetensors; do
    cmp adapted/checkpoints/00000000/$file swarm/checkpoints/00000000/$file || fail "the first weights differ"
done
wait_all_exited

# Tensors of boundaries depend on the split, which is known when workers have joined: here the run file changes it
# before that. Then the host is lost before the first checkpoint.
sets="$sets --set train.init_from=base --set train.freeze=embed.*,*.norm --set link.codec.name=strait
    --set link.codec.variant=free"
host_begin swarm2 run.yaml $sets
host_kill
sets="$sets --set stages.split=1,2"
runs train run.yaml --out frozen $sets --set train.keep_checkpoints=9
host_begin swarm2 run.yaml $sets
for i in 6 7; do join_begin swarm2 $i; done
wait_steps swarm2 2
host_kill
host_begin swarm2 run.yaml $sets --set train.init_from=nothere
host_ends 0 "a swarm that continues from step 0"
[ "$(grep -c 'base: [0-9]* tensors taken' swarm2/events.log)" -eq 2 ] || fail "the first weights were written once"
same_metrics frozen swarm2
same_weights frozen swarm2
wait_all_exited

# "strait train" has begun the run, and stopped before the first step. An import has no moments to continue from.
mkdir swarm3
cp -r frozen/. swarm3
for step in 04 08 12; do rm -r swarm3/checkpoints/000000$step; done
rm swarm3/metrics.jsonl
sets="$sets --set train.steps=2"
runs train run.yaml --out frozen2 $sets
host_begin swarm3 run.yaml --resume $sets --set train.init_from=nothere
for i in 8 9; do join_begin swarm3 $i; done
host_ends 0 "a swarm that begins with a run of strait train"
same_metrics frozen2 swarm3
same_weights frozen2 swarm3
runs import base-hf --out imported
refuses 3 'cannot continue from step 0 .*train.init_from' host imported/run.yaml --out imported --resume --keys keys-host \
    --set data.train=train.bin
