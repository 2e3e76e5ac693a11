#!/bin/sh
# replicas.sh - replicas of stages compute the same bits as one pipeline, over TLS and in threads, whatever
# their number and their shares; runs are saved by one of them and resumed by another number of them.
. "$(dirname "$0")/lib.sh"

make_corpus
make_run run.yaml 4 6
runs train run.yaml --out one

# equal NAME ARGS...: trains with these arguments and compares with the run of one process.
equal() {
    name=$1
    shift
    runs train run.yaml --out "$name" "$@"
    same_metrics one "$name"
    same_weights one "$name"
}

four="--set stages.count=4"
for transport in tls inproc; do
    by="$four --set link.transport=$transport"
    equal $transport-2 $by --set stages.replicas=2
    equal $transport-3 $by --set stages.replicas=3
    equal $transport-uneven $by --set 'stages.replicas=[1,2,1,3]'
done
equal three $four --set link.transport=inproc --set stages.replicas=3 --set stages.schedule=1f1b
equal shares $four --set link.transport=inproc --set 'stages.replicas=[1,3,1,1]' --set 'stages.speeds=[1,1,5,2,1,1]'
equal fill $four --set link.transport=inproc --set 'stages.replicas=[2,1,3,2]' --set stages.schedule=fill-drain
equal data-parallel --set stages.replicas=3 --set link.transport=inproc
# A microbatch that the run file leaves open is small enough for all replicas to have one.
runs train run.yaml --out automatic --set stages.microbatch=0 --set stages.replicas=2 --set link.transport=inproc

says tls-uneven/metrics.jsonl '"reduce_bytes":[1-9]'

# Groups of more than one microbatch, more parameters than one chunk of the reduction, and a codec.
wide="--set train.batch_tokens=256 --set stages.groups=5 --set model.width=96 --set model.vocab=1024"
runs train run.yaml --out wide-one $wide
runs train run.yaml --out wide-two $wide $four --set 'stages.replicas=[2,2,1,2]'
same_metrics wide-one wide-two
same_weights wide-one wide-two
code="$four --set link.transport=inproc --set link.codec.name=strait --set link.codec.variant=context --set model.table_rows=64"
runs train run.yaml --out code-one $code
runs train run.yaml --out code-two $code --set 'stages.replicas=[1,2,1,2]'
same_metrics code-one code-two
same_weights code-one code-two

# Rounded gradients: fewer bytes, the same on every transport, replicas that stay equal, and a similar loss.
bytes_of() { sed -n 's/.*"reduce_bytes":\([0-9.e+]*\).*/\1/p' "$1/metrics.jsonl" | tail -n 1; }
loss_of() { sed -n 's/.*"step":6,"loss":\([0-9.e+]*\).*/\1/p' "$1/metrics.jsonl" | tail -n 1; }
for bits in 8 4; do
    for transport in tls inproc; do
        runs train run.yaml --out rounded-$bits-$transport $four --set link.transport=$transport --set stages.replicas=2 \
            --set stages.reduce_bits=$bits
    done
    same_metrics rounded-$bits-tls rounded-$bits-inproc
    same_weights rounded-$bits-tls rounded-$bits-inproc
    awk "BEGIN { exit !($(bytes_of rounded-$bits-tls) < 1.5 * $bits / 32 * $(bytes_of tls-2)) }" ||
        fail "$bits bits take $(bytes_of rounded-$bits-tls) bytes, 32 take $(bytes_of tls-2)"
    awk "BEGIN { d = $(loss_of rounded-$bits-tls) / $(loss_of one); exit !(d > 0.99 && d < 1.01 && d != 1) }" ||
        fail "the loss with $bits bits is $(loss_of rounded-$bits-tls), with 32 $(loss_of one)"
done
refuses 2 'stages.reduce_bits is 7: expected 32, 8 or 4' train run.yaml --out bad $four --set stages.reduce_bits=7

# A run that two replicas began is continued by three, by one and by none.
for next in 'stages.replicas=[1,3,2,1]' stages.replicas=1; do
    cp -R tls-2 "resumed-$next"
    rm -r "resumed-$next"/checkpoints/*6
    runs train run.yaml --out "resumed-$next" --resume $four --set "$next" --set link.transport=inproc
    says "$ERR" 'resuming after step 4'
    same_metrics one "resumed-$next"
    same_weights one "resumed-$next"
done

# The plan counts them.
runs train run.yaml --out none --dry-run $four --set 'stages.replicas=[1,2,1,3]'
says "$OUT" 'stage 1 .*; 2 replicas, each sends .* of gradients per step' 'stage 3 .*; 3 replicas'
runs plan run.yaml --gflops 10 $four --set 'stages.replicas=[1,2,1,3]' --set link.emulate.rate=80mbit
says "$OUT" 'reduce stage 1: 2 replicas, each sends'
cp "$OUT" two.txt
runs plan run.yaml --gflops 0.001 --json $four
alone=$(sed 's/.*"tokens_per_s": \([0-9.e+]*\).*/\1/' "$OUT")
runs plan run.yaml --gflops 0.001 --json $four --set stages.replicas=2
pair=$(sed 's/.*"tokens_per_s": \([0-9.e+]*\).*/\1/' "$OUT")
awk "BEGIN { exit !($pair > 1.5 * $alone) }" || fail "two replicas plan $pair tokens/s, one $alone"

# It knows the home of each replica, and what one more machine would bring.
homes='--set stages.count=3 --set stages.groups=16 --set train.batch_tokens=8192 --set stages.microbatch=8 --set link.emulate.up=[80mbit,1mbit,80mbit]
    --set link.emulate.down=80mbit --gflops 1000'
runs plan run.yaml $homes
says "$OUT" 'home   stage 1: 1 Mb/s up [0-9]*% busy, 80 Mb/s down' 'limit  serialisation, most on stage 1' \
    'more   one more machine, as a replica of stage 1: 1\.'
runs plan run.yaml --json $homes
says "$OUT" '"more": {"stage": 1, "gain": 1\.'
refuses 2 'link.emulate.up has 2 rates for 3 stages' plan run.yaml $homes --set link.emulate.up=1mbit,2mbit

# What cannot be is refused before anything starts.
refuses 2 'stages.replicas has 3 numbers for 4 stages' train run.yaml --out bad $four --set 'stages.replicas=[1,2,1]'
refuses 2 '9 replicas of a stage cannot share 8 groups .*: lower stages.microbatch or raise train.batch_tokens' train run.yaml --out bad $four --set stages.replicas=9
refuses 2 'stages.speeds has 2 numbers for 8 replicas' train run.yaml --out bad $four --set stages.replicas=2 \
    --set 'stages.speeds=[1,2]'
refuses 2 'codec lowrank carries state' train run.yaml --out bad $four --set stages.replicas=2 \
    --set link.codec.name=lowrank --set link.codec.variant=
refuses 2 'codec int8 carries state' train run.yaml --out bad $four --set stages.replicas=2 \
    --set link.codec.name=int8 --set link.codec.variant= --set link.codec.feedback=true
refuses 2 'stages.speeds: a swarm measures how fast workers are' host run.yaml --out bad $four --set stages.replicas=2 \
    --set 'stages.speeds=[1,1,2,1,1,1,1,1]'
[ ! -e bad/metrics.jsonl ] || fail "a refused run has begun"

# A replica that is killed ends the run, which names it and can be resumed.
slow="$four --set stages.replicas=[1,2,1,1] --set train.steps=40 --set link.emulate.delay=30ms"
begin train run.yaml --out killed $slow
wait_lines killed 5
victim=$(cut -d ' ' -f 3 "/proc/$STARTED/task/$STARTED/children")
kill -9 "$victim"
ends 4
says "$ERR" 'stage 1, replica 1 was killed by signal 9 at step [0-9]+'
wait_all_exited
