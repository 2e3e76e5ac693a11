#!/bin/sh
# outer.sh - replicas that train on their own and average their weights (train.outer): the same bits in threads
# and over TLS, with any codec; a resumed run continues to the same bits; a run survives the loss of a replica and
# its record says who took part.
. "$(dirname "$0")/lib.sh"

make_corpus
make_run run.yaml 2 12
pair="--set stages.count=2 --set stages.replicas=2"
every="--set train.outer.sync_every=4"
threads="--set link.transport=inproc"

# averaged FOLDER: prints step and participants of each average.
averaged() { sed -n 's/^{"step":\([0-9]*\).*"averaged":\(\[[0-9,]*\]\).*/\1 \2/p' "$1/metrics.jsonl"; }

# The same bits in threads and over TLS, plain, and with everything on: few bits, fragments that overlap, momentum.
for bits in 32 4; do
    for transport in tls inproc; do
        runs train run.yaml --out plain-$bits-$transport $pair $every --set link.transport=$transport \
            --set train.outer.bits=$bits
    done
    same_metrics plain-$bits-tls plain-$bits-inproc
    same_weights plain-$bits-tls plain-$bits-inproc
done
[ "$(averaged plain-4-tls | tr '\n' ' ')" = "4 [0,1] 8 [0,1] 12 [0,1] " ] || fail "averages: $(averaged plain-4-tls)"
says plain-4-tls/metrics.jsonl '"average_bytes_per_token":[1-9]' '"divergence":[0-9.e-]*[1-9]'
all="$pair --set train.outer.sync_every=6 --set train.outer.bits=2 --set train.outer.fragments=3 --set train.outer.overlap=2
    --set train.optimizer=muon --set link.codec.name=strait --set link.codec.variant=context"
runs train run.yaml --out all-tls $all
runs train run.yaml --out all-inproc $all $threads
same_metrics all-tls all-inproc
same_weights all-tls all-inproc
[ "$(averaged all-tls | cut -d ' ' -f 1 | tr '\n' ' ')" = "4 6 8 10 12 " ] || fail "averages: $(averaged all-tls)"

# Codecs that carry state, moments averaged too, one replica, and an average in every step.
runs train run.yaml --out carries $pair $every $threads --set link.codec.name=lowrank --set link.codec.variant=
runs train run.yaml --out moments $pair $every $threads --set train.outer.average_state=moments
momentum="--set train.outer.average_state=momentum --set train.outer.state_bits=4 --set train.outer.bits=4
    --set train.optimizer=muon"
warm="$pair $every $momentum --set train.outer.warmup=9 --set train.outer.fragments=2"
for transport in tls inproc; do runs train run.yaml --out warm-$transport $warm --set link.transport=$transport; done
same_metrics warm-tls warm-inproc
same_weights warm-tls warm-inproc
[ "$(averaged warm-tls | cut -d ' ' -f 1 | tr '\n' ' ')" = "1 2 3 4 5 6 7 8 9 11 12 " ] || fail "averages: $(averaged warm-tls)"
# The warmup takes plain averages, whatever the outer step is afterwards.
runs train run.yaml --out warm-all $pair $every $threads --set train.outer.warmup=12
runs train run.yaml --out mean-all $pair $threads --set train.outer.sync_every=1 --set train.outer.learning_rate=1 \
    --set train.outer.momentum=0
for name in warm-all mean-all; do weights_of $name | grep -v '^outer\.momentum\.' >$name.weights; done
[ -s warm-all.weights ] && cmp -s warm-all.weights mean-all.weights || fail "a warmup is no plain average in every step"
runs train run.yaml --out one $every $threads
[ "$(averaged one | tail -n 1)" = "12 [0]" ] || fail "one replica: $(averaged one)"

# Adapters are averaged, and what they adapt stays as it is.
lora="$pair $every --set train.init_from=plain-32-tls --set train.lora.rank=2 --set train.outer.bits=4"
for transport in tls inproc; do runs train run.yaml --out lora-$transport $lora --set link.transport=$transport; done
same_metrics lora-tls lora-inproc
same_weights lora-tls lora-inproc
model_of() { weights_of "$1" | grep -vE '\.lora_|^replica\.|^outer\.|\.[mv] '; }
model_of lora-tls >adapted
model_of plain-32-tls >model
[ -s model ] && cmp -s model adapted || fail "the adapted model changed: $(diff model adapted | head -n 4)"
first_loss() { sed -n 's/^{"step":1,"loss":\([0-9.e+]*\).*/\1/p' "$1/metrics.jsonl"; }
awk "BEGIN { exit !($(first_loss lora-tls) < 0.9 * $(first_loss plain-32-tls)) }" ||
    fail "with train.init_from the first loss is $(first_loss lora-tls), from the seed $(first_loss plain-32-tls)"
weights_of lora-tls | grep -q '^outer\.momentum\..*lora_b ' || fail "no adapter was averaged"
! weights_of lora-tls | grep '^outer\.momentum\.' | grep -v '\.lora_' || fail "what never learns was averaged"
# Nor does a stage average anything in which nothing learns.
runs train run.yaml --out frozen $pair $every $threads --set 'train.freeze=embed*,blocks.0.*' --set train.outer.overlap=2
! weights_of frozen | grep '^outer\.momentum\.blocks\.0' || fail "a frozen stage was averaged"
weights_of frozen | grep -q '^outer\.momentum\.blocks\.1' || fail "the other stage was not averaged"

# One replica without momentum at learning rate 1 is plain training.
neutral="--set train.outer.learning_rate=1 --set train.outer.momentum=0"
runs train run.yaml --out alone $threads
runs train run.yaml --out neutral $every $neutral $threads
loss_of() { sed -n 's/.*"step":12,"loss":\([0-9.e+]*\).*/\1/p' "$1/metrics.jsonl" | tail -n 1; }
awk "BEGIN { d = $(loss_of neutral) / $(loss_of alone); exit !(d > 0.9999 && d < 1.0001) }" ||
    fail "the loss of one replica is $(loss_of neutral), without train.outer $(loss_of alone)"

# Fewer bits send fewer bytes.
bytes_of() { sed -n 's/.*"average_bytes_per_token":\([0-9.e+]*\).*/\1/p' "$1/metrics.jsonl" | tail -n 1; }
awk "BEGIN { exit !($(bytes_of plain-4-tls) < 0.25 * $(bytes_of plain-32-tls)) }" ||
    fail "4 bits take $(bytes_of plain-4-tls) bytes per token, 32 take $(bytes_of plain-32-tls)"

# A run that is continued ends with the same bits: between averages, while a fragment is under way, in a warmup (step 8).
for name in plain-4-inproc all-inproc warm-inproc; do
    cp -R $name resumed-$name
    rm -r resumed-$name/checkpoints/*12
    case $name in
        all-inproc) options=$all ;;
        warm-inproc) options=$warm ;;
        *) options="$pair $every --set train.outer.bits=4" ;;
    esac
    runs train run.yaml --out resumed-$name --resume $options $threads
    says "$ERR" 'resuming after step 8'
    same_metrics $name resumed-$name
    same_weights $name resumed-$name
done

# A checkpoint of two replicas is continued by three, and without train.outer.
for next in '--set stages.replicas=3' '--set train.outer.sync_every=0'; do
    rm -rf other
    cp -R plain-32-inproc other
    rm -r other/checkpoints/*12
    runs train run.yaml --out other --resume $pair $every $threads $next
done

# The matrices of attention are averaged more often than the rest, and a run that is continued in between has the same
# bits.
often="$pair $every $momentum --set train.outer.attention_every=3"
for transport in tls inproc; do runs train run.yaml --out often-$transport $often --set link.transport=$transport; done
same_metrics often-tls often-inproc
same_weights often-tls often-inproc
[ "$(averaged often-tls | cut -d ' ' -f 1 | tr '\n' ' ')" = "3 4 6 8 9 12 " ] || fail "averages: $(averaged often-tls)"
cp -R often-inproc resumed-often
rm -r resumed-often/checkpoints/*12
runs train run.yaml --out resumed-often --resume $often $threads
same_metrics often-inproc resumed-often
same_weights often-inproc resumed-often
# With the intervals of the rest it is the same run as without.
for every_attention in 0 4; do
    runs train run.yaml --out attention-$every_attention $pair $every $threads --set train.outer.attention_every=$every_attention
done
for name in attention-0 attention-4; do weights_of $name | sort >$name.weights; done
[ -s attention-0.weights ] && cmp -s attention-0.weights attention-4.weights ||
    fail "attention averaged every 4 steps like the rest gives other weights"

# The plan counts it.
runs train run.yaml --out none --dry-run $pair $every --set train.outer.bits=4
says "$OUT" 'stage 1 .*; 2 replicas, each sends .* per average'
runs plan run.yaml --gflops 10 $pair $every --set link.emulate.rate=80mbit
says "$OUT" 'average stage 1: 2 replicas, each sends .* every 4 steps' \
    'more   another pipeline, of 2 machines: 1\.[0-9]+ times the speed'
runs plan run.yaml --gflops 10 $pair $every --set train.outer.warmup=3
says "$OUT" 'every 4 steps in 1 part and after each of the first 3, [0-9.]+ bytes per token'

runs plan run.yaml --gflops 10 $pair $every --set train.outer.attention_every=2
says "$OUT" 'every 4 steps in 1 part, .* of attention every 2, [0-9.]+ bytes per token'

# What cannot be is refused before anything starts.
refuses 2 'attention_every: 5 are more than the 4 steps' train run.yaml --out bad $pair $every \
    --set train.outer.attention_every=5
refuses 2 'attention_every: only with train.outer.overlap 0' train run.yaml --out bad $pair $every \
    --set train.outer.attention_every=2 --set train.outer.overlap=1
refuses 2 'stage 0 has 1 replicas and stage 1 has 2' train run.yaml --out bad --set stages.count=2 $every \
    --set 'stages.replicas=[1,2]'
refuses 2 'train.outer.bits is 5' train run.yaml --out bad $pair $every --set train.outer.bits=5
refuses 2 'train.outer.fragments: 5 are more' train run.yaml --out bad $pair $every --set train.outer.fragments=5
refuses 2 'train.outer.overlap: 3 steps are more' train run.yaml --out bad $pair $every --set train.outer.overlap=3 \
    --set train.outer.fragments=2
refuses 2 'moments are averaged with train.outer.overlap 0' train run.yaml --out bad $pair $every \
    --set train.outer.overlap=1 --set train.outer.average_state=moments
refuses 2 'train.outer.warmup: there are no local steps' train run.yaml --out bad $pair --set train.outer.warmup=3
refuses 2 'train.outer.warmup: 13 steps are more than the 12' train run.yaml --out bad $pair $every \
    --set train.outer.warmup=13
refuses 2 'average_state momentum: optimizer adamw has second moments' train run.yaml --out bad $pair $every \
    --set train.outer.average_state=momentum
refuses 2 'train.outer.state_bits is 5' train run.yaml --out bad $pair $every --set train.outer.state_bits=5
refuses 2 'train.outer.state_bits: 4 are too few for second moments' train run.yaml --out bad $pair $every \
    --set train.outer.state_bits=4 --set train.outer.average_state=moments
refuses 2 'train.outer.state_bits: no state of the optimizer is averaged' train run.yaml --out bad $pair $every \
    --set train.outer.state_bits=4
refuses 2 'a worker of a swarm cannot check the moments' host run.yaml --out bad $every \
    --set train.outer.average_state=moments
refuses 2 'train.outer: audits .* know no averages' host run.yaml --out bad $every --audit-share 0.1
[ ! -e bad/metrics.jsonl ] || fail "a refused run has begun"

# A replica that is killed is left out, the run finishes, and the record says who took part.
begin train run.yaml --out killed --set stages.count=2 --set stages.replicas=3 $every --set train.steps=40 \
    --set link.emulate.delay=20ms --set train.outer.bits=4
wait_lines killed 6
victim=$(cut -d ' ' -f 5 "/proc/$STARTED/task/$STARTED/children")
kill -9 "$victim"
ends 0
says "$ERR" 'replica 1 is lost since step [0-9]+, the run goes on with 2 of 3: stage 1, replica 1 was killed by signal 9'
averaged killed >seen
grep -qx '4 \[0,1,2\]' seen && [ "$(tail -n 1 seen)" = '40 [0,2]' ] || fail "averages: $(cat seen)"
wait_all_exited
# The next session has all replicas again: the one that was lost starts from the average.
runs train run.yaml --out killed --resume --set stages.count=2 --set stages.replicas=3 $every --set train.steps=44 \
    --set train.outer.bits=4 $threads
[ "$(averaged killed | tail -n 1)" = '44 [0,1,2]' ] || fail "averages: $(averaged killed | tail -n 1)"
