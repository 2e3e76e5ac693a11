#!/bin/sh
# lora.sh STRAIT WEIGHTS MERGE - adapters: the weights of the model stay as they are, any number of stages
# computes the same bits, a resumed run continues, and the exports agree with each other.
. "$(dirname "$0")/../lib.sh"
merge=$3

make_corpus
make_run run.yaml 4 10
runs train run.yaml --out base --set train.steps=12
runs export base --to hf --out base-hf
lora="--set train.init_from=base-hf --set train.lora.rank=4 --set train.learning_rate=0.02 --set train.steps=12"
runs train run.yaml --out one $lora --set train.lora.targets=q,v,out,gate,up,down
says "$ERR" 'weights from .*base-hf: [0-9]+ tensors taken, 48 new'
all="$lora --set train.lora.targets=q_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"
for more in 'two --set stages.count=2' 'four --set stages.count=4 --set stages.schedule=1f1b' \
    'again --set train.recompute=true' 'shared --set stages.count=2 --set stages.replicas=[2,1]'; do
    runs train run.yaml --out $more $all
    same_metrics one "${more%% *}"
    same_weights one "${more%% *}"
done

# Only adapters have changed, and only they have moments.
weights_of base | grep -v '\.[mv] ' >"$SCRATCH/before"
weights_of one | grep -v 'lora_\|\.[mv] ' >"$SCRATCH/after"
cmp -s "$SCRATCH/before" "$SCRATCH/after" || fail "a weight of the model has changed"
[ "$(weights_of one | grep -c 'lora_[ab]\.[mv] ')" -eq 96 ] || fail "adapters have other moments than 96"
loss_of() {
    sed -n 's/.*"step":12,"valid_loss":\([0-9.]*\).*/\1/p' "$1/metrics.jsonl"
}
awk "BEGIN { exit !($(loss_of one) < $(loss_of base) - 0.01) }" ||
    fail "the adapters did not learn: $(loss_of base) to $(loss_of one)"

# A checkpoint of the middle goes on to the same bits.
cp -r one resumed
rm -rf resumed/checkpoints/00000012
runs train run.yaml --out resumed --resume $all
same_weights one resumed

# Codecs that round: about the loss of one process. Codecs that would have to be trained are refused.
for codec in int8 int4; do
    runs train run.yaml --out $codec $all --set stages.count=2 --set link.codec.variant= --set link.codec.name=$codec
    awk "BEGIN { d = $(loss_of $codec) / $(loss_of one) - 1; exit !(d < 0.01 && d > -0.01) }" ||
        fail "$codec ends at $(loss_of $codec), one process at $(loss_of one)"
done
for codec in strait resbm subspace; do
    refuses 2 "train.lora: codec $codec is a part of the model" train run.yaml --out x $all --set stages.count=2 \
        --set link.codec.variant= --set link.codec.name=$codec
done
refuses 2 'train.lora.targets: "head" is no matrix' train run.yaml --out x $lora --set train.lora.targets=q,head
refuses 2 'train.lora: needs train.init_from' train run.yaml --out x --set train.lora.rank=4
refuses 3 'was saved with train.lora_rank 4, the run has 8' train run.yaml --out one --resume $all --set train.lora.rank=8

# The merged export is the base with the adapters of the PEFT folder; read again it has the run's loss.
runs export one --to hf --out merged-hf
[ "$(sed -n '/^# /p' merged-hf/README.md)" = "$(sed -n '/^# /p' base-hf/README.md)" ] ||
    fail "the card of the merged model counts adapters: $(sed -n '/^# /p' merged-hf/README.md base-hf/README.md)"
runs export one --to peft --out peft
says peft/adapter_config.json '"peft_type": "LORA"' '"r": 4' '"lora_alpha": 8,' '"o_proj"'
"$merge" base-hf/model.safetensors peft/adapter_model.safetensors merged-hf/model.safetensors 2 >"$OUT" ||
    fail "the exports cannot be compared"
awk '{ exit !($1 < 1e-6 && $2 == 24) }' "$OUT" || fail "base and adapters differ from the merged model: $(cat "$OUT")"
"$merge" base-hf/model.safetensors peft/adapter_model.safetensors merged-hf/model.safetensors 1 >"$OUT"
awk '{ exit !($1 > 1e-4) }' "$OUT" || fail "the comparison does not see the adapters"
runs import merged-hf --out merged
runs eval one --data train.bin
cp "$OUT" "$SCRATCH/ours"
runs eval merged --data train.bin
awk 'NR == FNR { a[FNR] = $2; next } FNR == 1 { d = a[1] - $2; exit !(d < 1e-4 && d > -1e-4) }' "$SCRATCH/ours" "$OUT" ||
    fail "adapted and merged model have different losses"
# A run that starts from an adapted one takes the merged weights.
runs train run.yaml --out full --set train.init_from=one --set train.steps=2
runs train run.yaml --out full-merged --set train.init_from=merged --set train.steps=2
same_weights full full-merged
refuses 2 'base has no adapters' export base --to peft --out y
refuses 2 '--to peft writes f32' export one --to peft --out y --dtype f16
wait_all_exited
