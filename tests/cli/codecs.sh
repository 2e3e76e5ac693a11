#!/bin/sh
# codecs.sh - checks that with every codec, stages in separate processes over TLS compute the same bits as
# stages in one process, also when the run is resumed from a checkpoint.
. "$(dirname "$0")/lib.sh"

make_corpus
make_run run.yaml 4 6

# check NAME SETS...: trains over both transports and once more from the checkpoint of step 4; all three
# must agree.
check() {
    name=$1
    shift
    cut="--set stages.count=3 --set link.codec.variant="
    for transport in tls inproc; do
        runs train run.yaml --out "$name-$transport" $cut --set link.transport=$transport "$@"
    done
    same_metrics "$name-tls" "$name-inproc"
    same_weights "$name-tls" "$name-inproc"
    cp -r "$name-tls" "$name-again"
    rm -r "$name-again/checkpoints/00000006"
    runs train run.yaml --out "$name-again" --resume $cut "$@"
    says "$ERR" 'resuming after step 4'
    same_metrics "$name-tls" "$name-again"
    same_weights "$name-tls" "$name-again"
}

check fp32 --set link.codec.variant=fp32
check bf16
# The validation after step 5 also sends messages; they are not counted for any step.
for direction in forward backward; do
    [ "$(grep -o "\"${direction}_bytes_per_token\":[0-9.]*" bf16-inproc/metrics.jsonl | sort -u | wc -l)" = 1 ] ||
        fail "steps do not send the same number of bytes $direction: $(grep -o '"forward_bytes.*ratio' bf16-inproc/metrics.jsonl)"
done
check int8 --set link.codec.name=int8
check int8-feedback --set link.codec.name=int8 --set link.codec.feedback=true
check int4 --set link.codec.name=int4
check topk --set link.codec.name=topk --set link.codec.keep=8
check topk-feedback --set link.codec.name=topk --set link.codec.keep=8 --set link.codec.feedback=true
check lowrank --set link.codec.name=lowrank --set link.codec.rank=4
check subspace --set link.codec.name=subspace --set link.codec.keep=8 \
    --set train.optimizer=adamw-rows
check subspace-turns --set link.codec.name=subspace --set link.codec.keep=8 \
    --set train.optimizer=adamw-rows --set link.codec.grassmann_every=2
check subspace-factored --set link.codec.name=subspace --set link.codec.keep=8 \
    --set link.codec.variant=factored
check subspace-factored-turns --set link.codec.name=subspace --set link.codec.keep=8 \
    --set link.codec.variant=factored --set link.codec.grassmann_every=2
check resbm --set link.codec.name=resbm --set link.codec.keep=8
b="--set link.codec.name=resbm --set link.codec.variant=b --set link.codec.keep=8"
check resbm-b $b
check resbm-b-bits $b --set link.codec.bits=4 --set stages.count=4
check resbm-b-muon $b --set train.optimizer=muon --set stages.schedule=fill-drain
check resbm-b-recomputed $b --set train.recompute=true --set model.family=yardstick
tied="--set link.codec.name=strait --set link.codec.variant=tied --set link.codec.keep=8"
check tied $tied --set link.codec.bits=4
check tied-muon $tied --set train.optimizer=muon
check tied-fill $tied --set stages.schedule=fill-drain
check free $tied --set link.codec.variant=free
context="--set link.codec.name=strait" # context is its default variant
check context $context
check context-fixed $context --set link.codec.rule=1
grep -q 'variant: "context"' context-tls/run.yaml || fail "$(grep variant context-tls/run.yaml)"
check context-muon $context --set link.codec.rule=1 --set train.optimizer=muon --set stages.schedule=fill-drain
check context-two $context --set stages.count=2 --set model.local_every=2 --set train.recompute=true
# Gates and tables with fewer rows than the corpus has token ids.
check context-shared $context --set model.table_rows=64 --set link.codec.gate_width=16
check context-bare $context --set link.codec.gains=false --set model.conv=0 --set model.anchors=false \
    --set model.value_tables=false --set link.codec.keep=8 --set link.codec.context=2

# What follows from the ratio: a code, and up to 4x the stream itself, with the bits of the codecs that send it.
check rule $context --set link.codec.ratio=8 --set train.optimizer=muon
grep -q '# gate_width: 8$' rule-tls/run.yaml || fail "$(grep -A 40 codec: rule-tls/run.yaml)"
check rule-bare $context --set link.codec.ratio=8 --set model.anchors=false
additions="--set model.conv=4 --set model.qkv_conv=true --set model.anchors=true --set model.value_tables=true"
for pair in 1:none 2:int8 4:int4; do
    cut="--set stages.count=3 --set link.transport=inproc --set link.codec.variant="
    name=${pair#*:}
    runs train run.yaml --out stream-$name $cut $context --set link.codec.ratio=${pair%:*}
    says "$ERR" "codec strait at ratio ${pair%:*}: the residual stream itself crosses, as codec $name sends it"
    grep -q 'name: "strait"' stream-$name/run.yaml || fail "the record names $(grep name: stream-$name/run.yaml)"
    runs train run.yaml --out plain-$name $cut $additions --set link.codec.name=$name
    same_metrics stream-$name plain-$name
    same_weights stream-$name plain-$name
done
cp -r stream-int4 stream-again
rm -r stream-again/checkpoints/00000006
runs train stream-int4/run.yaml --out stream-again --resume
same_weights stream-int4 stream-again
refuses 2 'link.codec.hidden: codec strait at ratio 4 sends the stream itself' train run.yaml --out refused \
    --set stages.count=3 --set link.codec.variant= $context --set link.codec.ratio=4 --set link.codec.hidden=8

# What needs neither token tables nor a convolution of the stream goes with every codec.
inner="--set model.conv=3 --set model.inner_conv=true --set model.qkv_conv=true --set model.value_tables=true"
check subspace-inner --set link.codec.name=subspace --set link.codec.keep=8 --set train.optimizer=adamw-rows $inner
jq -e -s 'map(.leak | arrays | max) | max < 1e-5' subspace-inner-tls/metrics.jsonl >"$OUT" ||
    fail "additions leave the subspace: $(tail -n 2 subspace-inner-tls/metrics.jsonl)"
check subspace-factored-inner --set link.codec.name=subspace --set link.codec.variant=factored --set link.codec.keep=8 $inner
check resbm-b-inner $b $inner --set train.recompute=true
for codec in "subspace" "subspace --set link.codec.variant=factored" "resbm --set link.codec.variant=b"; do
    for part in model.conv=4:inner_conv model.anchors=true:anchors; do
        refuses 2 "${part%=*}.* model.${part#*:}" train run.yaml --out refused --set stages.count=3 \
            --set link.codec.variant= --set link.codec.name=$codec --set ${part%:*}
    done
done

# Without any token table codec strait learns in every family.
for family in llama yardstick; do
    runs train run.yaml --out bare-$family $context --set link.codec.variant= --set stages.count=3 --set model.family=$family \
        --set link.codec.gains=false --set model.anchors=false --set model.value_tables=false --set train.steps=40 \
        --set train.learning_rate=0.01 --set train.schedule=linear --set train.warmup=0 --set link.transport=inproc
    jq -e -s 'map(.loss | numbers) | .[39] < .[0] - 1' bare-$family/metrics.jsonl >"$OUT" ||
        fail "$family does not train without token tables: $(tail -n 1 bare-$family/metrics.jsonl)"
done

# A checkpoint of another codec variant is refused, and the error names the setting that fixes it.
sed 's/variant: "tied"/variant: ""/' tied-tls/run.yaml >default.yaml
refuses 3 'was saved with variant tied of codec strait, the run has context: .* link.codec.variant to tied' \
    train default.yaml --out tied-tls --resume
runs train default.yaml --out tied-again --resume --set link.codec.variant=tied

# 31 values per token and their scale take 16 bytes; frames and heartbeats, of which a slow machine
# sends more, take less than one byte per token.
runs train run.yaml --out narrow $context --set link.codec.variant= --set stages.count=3 --set model.context=128 \
    --set train.batch_tokens=2048 --set stages.microbatch=8 --set train.steps=4 \
    --set data.valid_tokens=300
jq -e -s '(map(.forward_bytes_per_token | numbers) | min) as $forward |
    (map(.backward_bytes_per_token | numbers) | min) as $backward |
    $forward > 16 and $forward < 17 and $backward > 16 and $backward < 17' \
    narrow/metrics.jsonl >"$OUT" ||
    fail "context: $(tail -n 1 narrow/metrics.jsonl)"

# Weights that leave their subspace, because plain AdamW moves them and nothing projects them back,
# raise a warning that names the boundary; weights that stay raise none.
quiet="--set stages.count=3 --set link.transport=inproc --set train.steps=30
    --set link.codec.name=subspace --set link.codec.variant= --set link.codec.keep=8"
runs train run.yaml --out leaks $quiet --set link.codec.leak_limit=1
says "$ERR" '^note: boundary [01] loses 0\.[0-9]+ of its activations, up from 0\.[0-9]+'
runs train run.yaml --out stays $quiet --set train.optimizer=adamw-rows
! grep '^note:' "$ERR" | grep -qv 'changes the model' || fail "a warning was printed although the residual did not rise"

# A basis update that moves nothing changes no bit, and a small one does not disturb the optimizer: second
# moments that are lost there would lengthen the next updates.
for variant in full factored; do
    runs train run.yaml --out still-$variant $quiet --set link.codec.variant=$variant --set train.optimizer=adamw-rows
    for rate in 1e-9 1e-5; do
        runs train run.yaml --out moved-$variant-$rate $quiet --set link.codec.variant=$variant \
            --set train.optimizer=adamw-rows --set link.codec.grassmann_every=15 --set link.codec.grassmann_rate=$rate
    done
    same_metrics still-$variant moved-$variant-1e-9
    jq -e -s 'map(select(.loss)) | group_by(.step) | map(.[0].loss - .[1].loss) | max < 0.01 and min > -0.01 and max > 0' \
        still-$variant/metrics.jsonl moved-$variant-1e-5/metrics.jsonl >"$OUT" ||
        fail "a small basis update changed the losses of variant $variant by more than 0.01"
done

# A run that names no codec, over links with a rate, gets one that fits them: on links as slow as these the
# narrowest. The same by hand has the same bits. Links that change, and a run file that still names none, leave
# the codec of a run as it is; one that is half or twice as fast is named.
sed 's/codec: {variant: fp32}, //' run.yaml >unnamed.yaml
slow="--set stages.count=3 --set link.emulate.rate=50kbit"
runs train unnamed.yaml --out chosen $slow --set train.steps=3
says "$ERR" '^codec auto: strait at ratio [0-9]+' '^codec auto: .* tokens/s expected' 'link 0-1 \(50kbit\) is too slow'
ratio=$(sed -n 's/^ *ratio: //p' chosen/run.yaml)
runs train unnamed.yaml --out by-hand $slow --set train.steps=3 --set link.codec.name=strait --set link.codec.ratio="$ratio"
! grep -q '^codec auto' "$ERR" || fail "a codec was chosen although one is named"
same_metrics chosen by-hand
same_weights chosen by-hand
runs train unnamed.yaml --out chosen --resume --set stages.count=3 --set train.steps=4
! grep -q '^codec auto' "$ERR" || fail "a resumed run chose a codec"
says "$ERR" 'link 0-1 has no limit instead of the 50kbit .* the next one should take none'
runs train --resume by-hand --set train.steps=4 --set link.emulate.rate=0
same_weights chosen by-hand

# The run.yaml of a run before there was a choice names no codec: such a run has none, and keeps it.
runs train unnamed.yaml --out old --set stages.count=3 --set link.codec.name=none --set train.steps=2 \
    --set link.emulate.rate=200kbit
sed -i 's/^\( *\)name: "none"/\1# name: "none"/' old/run.yaml
head -c 400 text.txt >small.txt
runs tokenize --tokenizer tokenizer.json --out small.bin small.txt
runs eval old --as-run --data small.bin
! grep -q '^codec auto' "$ERR" || fail "eval chose a codec for a run that has none"
runs train --resume old --set train.steps=3
! grep -q '^codec auto' "$ERR" || fail "a run without a codec chose one when it was resumed"
says old/run.yaml '^ *name: "none"'
wait_all_exited
