# runs.sh - the runs of compare-commits and the option keys they set.
# shellcheck shell=bash

# Every key that was renamed: its names, the newest first. Runs below use the first name; a program is
# given the first one that its "strait options" lists.
RENAMED_KEYS='
train.learning_rate train.rate
train.embedding_learning_rate train.embedding_rate
train.head_learning_rate train.head_rate
train.gain_learning_rate train.gain_rate
train.conv_learning_rate train.conv_rate
train.mixing_learning_rate train.mixing_rate
train.residual_out_learning_rate train.writer_rate
train.boundary_learning_rate train.boundary_rate
train.encoder_basis_learning_rate train.frame_rate
train.value_learning_rate train.value_rate
train.anchor_learning_rate train.anchor_rate
train.final_learning_rate train.final_rate
train.weight_decay train.decay
train.embedding_weight_decay train.embedding_decay
train.keep_checkpoints train.keep
link.codec.encoder_basis link.codec.frame
link.emulate.drop_after link.emulate.cut_after
stages.coordinator stages.conductor
'

# Keys that keep what programs without them always did: such programs are not given them.
LATER_KEYS=' train.row_moments link.codec.encode_input '

# Runs that a program with the key computes differently by design from one without it: "RUN KEY REASON".
# Such a pair is shown as "new", with the reason; two programs that both have the key must agree.
CHANGED_RUNS='
codec-subspace-basis train.row_moments basis updates keep second moments
codec-subspace-factored-basis train.row_moments basis updates keep second moments
cuda-subspace train.row_moments basis updates keep second moments
'

# ---- the runs ----

declare -A KIND REFERENCE SETTINGS
NAMES=()

# add NAME KIND REFERENCE SETTINGS...: a run. KIND is train, killed (kill -9 of "strait train", then
# --resume) or swarm (kill -9 of a worker). Where REFERENCE is not -, each side must also give the
# losses and weights of that run of its own.
add() {
    NAMES+=("$1")
    KIND[$1]=$2 REFERENCE[$1]=$3
    shift 3
    SETTINGS[${NAMES[-1]}]=$*
}

add_cpu_runs() {
    common='model.width=32 model.layers=4 model.heads=2 model.ffn=48 model.context=16
        data.valid_tokens=64 train.steps=10 train.batch_tokens=128 train.learning_rate=0.005
        train.valid_every=4 train.save_every=4 train.keep_checkpoints=2 stages.microbatch=1
        link.deadline=60s device.threads=1'
    local four='stages.count=4' exact='link.codec.variant=fp32' value

    # One stage: optimizers, learning rates, models.
    add adamw train - train.optimizer=adamw
    add adamw-rows train - train.optimizer=adamw-rows train.row_moments=all
    add muon train - train.optimizer=muon train.learning_rate=0.02
    add threads train adamw device.threads=3
    add seed train - train.seed=7
    for value in linear cosine constant 'constant train.decay_steps=4'; do
        add "rate-${value/ *=/-}" train - train.schedule=$value train.warmup=3 train.final_learning_rate=0.2
    done
    add no-clip train - train.clip=0 train.beta1=0.8 train.beta2=0.9 train.epsilon=1e-6
    add weight-decay train - train.weight_decay=0.5 train.embedding_weight_decay=0.3 train.clip=0.1
    local rates='train.embedding_learning_rate=0.1 train.head_learning_rate=0.002
        train.gain_learning_rate=0.003 train.conv_learning_rate=0.004 train.value_learning_rate=0.006
        train.anchor_learning_rate=0.007 train.anchor_steps=6'
    local additions='model.anchors=true model.value_tables=true model.conv=4 model.qkv_conv=true'
    add learning-rates train - $additions $rates
    add learning-rates-muon train - $additions $rates train.optimizer=muon train.momentum=0.9 \
        train.momentum_start=0.7 train.momentum_warmup=5
    add model-anchors train - model.anchors=true
    add model-value-tables train - model.value_tables=true
    add model-conv train - model.conv=4
    add model-qkv-conv train - model.conv=3 model.qkv_conv=true
    add model-additions-muon train - $additions train.optimizer=muon model.local_every=2
    add yardstick train - model.family=yardstick train.optimizer=muon
    add model-shared-kv train - model.kv_heads=1 model.tied=true model.head_dim=24 model.rope_theta=500
    add model-qk-norm train - model.qk_norm=true model.qk_gain=true model.softcap=10 model.rope=half \
        model.activation=relu2 model.init=yardstick model.attention_scale=0.2
    add recompute train adamw train.recompute=true

    # Four stages with exact boundaries: the same bits as one stage.
    add stages-4 train adamw $four $exact
    add stages-4-muon train muon $four $exact train.optimizer=muon train.learning_rate=0.02
    add stages-4-recompute train adamw $four $exact train.recompute=true
    add stages-4-inproc train adamw $four $exact link.transport=inproc
    add stages-4-additions train learning-rates $four $exact $additions $rates
    add stages-uneven train adamw stages.count=3 'stages.split=[2,1,1]' stages.window=2 $exact
    for value in fill-drain 1f1b 1f1b-window 1f1b-split; do
        add "schedule-$value" train adamw $four $exact stages.schedule=$value
    done

    # Every codec over four stages.
    codec() {
        local name=$1
        shift
        add "codec-$name" train - $four "link.codec.name=${name%%-*}" "$@"
    }
    codec none-bf16
    codec none-emulated link.emulate.rate=20mbit link.emulate.delay=2ms link.emulate.jitter=1ms \
        link.emulate.loss=0.05 link.emulate.drop_after=1000s
    codec int8
    codec int8-nearest link.codec.rounding=nearest
    codec int8-feedback link.codec.feedback=true
    codec int4
    codec int4-tile link.codec.tile=8 link.codec.feedback=true
    codec topk link.codec.keep=8
    codec topk-feedback link.codec.keep=8 link.codec.feedback=true
    codec lowrank link.codec.rank=4
    codec lowrank-feedback link.codec.rank=4 link.codec.feedback=true
    codec subspace link.codec.keep=8 train.optimizer=adamw-rows train.row_moments=all
    codec subspace-basis link.codec.keep=8 train.optimizer=adamw-rows train.row_moments=all link.codec.grassmann_every=2
    codec subspace-project link.codec.keep=8 link.codec.confine_every=1
    codec subspace-leak link.codec.keep=8 link.codec.leak_limit=0.01
    codec subspace-factored link.codec.keep=8 link.codec.variant=factored
    codec subspace-factored-basis link.codec.keep=8 link.codec.variant=factored \
        link.codec.grassmann_every=2 link.codec.grassmann_rate=0.2 train.optimizer=muon
    codec resbm link.codec.keep=8
    codec resbm-hidden link.codec.keep=8 link.codec.hidden=24 link.codec.bits=8 link.codec.grad_bits=16
    codec resbm-b link.codec.keep=8 link.codec.variant=b
    codec resbm-b-4bit link.codec.keep=8 link.codec.variant=b link.codec.bits=4
    codec resbm-b-muon link.codec.keep=8 link.codec.variant=b train.optimizer=muon train.recompute=true \
        model.family=yardstick train.boundary_learning_rate=0.004
    codec strait-tied link.codec.keep=8 link.codec.bits=4 link.codec.variant=tied
    codec strait-tied-muon link.codec.keep=8 link.codec.variant=tied train.optimizer=muon
    codec strait-free link.codec.keep=8 link.codec.variant=free
    codec strait-context
    codec strait-context-muon train.optimizer=muon train.learning_rate=0.045 model.family=yardstick
    codec strait-context-basis link.codec.encoder_basis=0.5 train.encoder_basis_learning_rate=0 \
        train.mixing_learning_rate=0.01 train.residual_out_learning_rate=0.002 link.codec.encoder=48 \
        link.codec.hidden=40 link.codec.anchors=24
    codec strait-context-bare link.codec.gains=false model.conv=0 model.qkv_conv=false \
        model.anchors=false model.value_tables=false link.codec.keep=8 link.codec.context=2 \
        link.codec.encode_input=0
    codec strait-context-recompute train.recompute=true model.local_every=2 stages.count=2 \
        train.optimizer=muon

    # Interrupted runs. Slow links make sure that the signal comes in the middle of the run.
    local slow='train.steps=12 link.emulate.delay=20ms'
    add straight train - stages.count=2 $exact train.steps=12
    add killed killed straight stages.count=2 $exact $slow
    add straight-strait train - $four link.codec.name=strait train.optimizer=muon train.steps=12
    add killed-strait killed straight-strait $four link.codec.name=strait train.optimizer=muon $slow
    slow='train.steps=24 link.emulate.delay=20ms'
    # A host splits the layers by the speed it measures, and with a codec another split is another model.
    local split='stages.count=2 stages.split=[2,2]'
    add straight-swarm train - $split $exact train.steps=24
    add swarm swarm straight-swarm $split $exact $slow
    add straight-swarm-strait train - $split link.codec.name=strait train.steps=24
    add swarm-strait swarm straight-swarm-strait $split link.codec.name=strait $slow
}

add_cuda_runs() {
    common='model.width=256 model.layers=4 model.heads=4 model.context=64 data.valid_tokens=1024
        train.steps=12 train.batch_tokens=2048 train.valid_every=4 train.save_every=0 stages.microbatch=4
        link.deadline=60s device.kind=cuda train.optimizer=muon'
    add cuda-bf16 train - device.precision=bf16
    add cuda-strait train - stages.count=4 link.codec.name=strait
    add cuda-subspace train - stages.count=4 link.codec.name=subspace link.codec.keep=32 \
        train.optimizer=adamw-rows train.row_moments=all link.codec.grassmann_every=4
}
