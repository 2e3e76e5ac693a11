/* From the options of a run file to sizes, splits and schedules. */
#include "config/run_plan.h"

#include "config/microbatch.h"
#include "run_plan_rig.h"
#include "stage/runner.h"

static void layers_are_split_over_stages(void **state) {
    (void)state;
    for (int count = 1; count <= 8; count++) {
        char set[32];
        (void)snprintf(set, sizeof set, "stages.count=%d", count);
        CHECK_OK(make(set, NULL, NULL));
        assert_int_equal(plan.n_stages, count);
        assert_int_equal(plan.stage_layers[0].first, 0);
        assert_int_equal(plan.stage_layers[count - 1].last, 8);
        for (int i = 0; i < count; i++) {
            assert_true(plan.stage_layers[i].last > plan.stage_layers[i].first);
            if (i > 0) assert_int_equal(plan.stage_layers[i].first, plan.stage_layers[i - 1].last);
        }
    }
    CHECK_OK(make("stages.count=3", "model.conv=2", "model.local_every=2"));
    for (int i = 0; i < 3; i++)
        assert_int_equal(plan.stage_layers[i].first % 2, 0); // a stage begins with a local block
    CHECK_OK(make("stages.count=3", "stages.split=[1,5,2]", NULL));
    assert_int_equal(plan.stage_layers[1].first, 1);
    assert_int_equal(plan.stage_layers[1].last, 6);
    assert_int_equal(plan.shape.vocab, 64); // from the file, not from the data
}

static void chooses_microbatches_for_the_pipeline(void **state) {
    (void)state;
    CHECK_OK(make(NULL, NULL, NULL));
    assert_int_equal(plan.sequences, 32);
    assert_int_equal(plan.microbatch, 32); // one microbatch, since 512 tokens are few
    CHECK_OK(make("stages.count=4", NULL, NULL));
    assert_int_equal(plan.n_microbatches, 16); // four per stage
    CHECK_OK(make("stages.count=8", "train.batch_tokens=160", NULL));
    assert_int_equal(plan.microbatch, 1); // as many microbatches as sequences
    CHECK_OK(make("stages.microbatch=4", NULL, NULL));
    assert_int_equal(plan.n_microbatches, 8);
}

/* Sequences of a microbatch of 64 on a GPU, for a model of this width in eight stages. */
static int64_t on_gpu(int width, const char *a, const char *b, const char *c) {
    char text[300];
    const char *sets[] = {a, b, c};
    int n = 0;
    const int bytes = snprintf(text, sizeof text,
                               "model: {width: %d, layers: 8, heads: 8, ffn: 64, context: 1024, "
                               "vocab: 64}\ntrain: {batch_tokens: 65536}\nstages: {count: 8}\n"
                               "device: {kind: cuda, precision: bf16}\n",
                               width);
    while (n < 3 && sets[n] != NULL)
        n++;
    CHECK_OK(strait_run_init_text("r.yaml", text, (size_t)bytes, sets, n, &run));
    CHECK_OK(strait_run_plan_init(&run, 0, &plan));
    return plan.microbatch;
}

static void stages_that_share_a_gpu_have_large_microbatches(void **state) {
    (void)state;
    const char *shared = "link.transport=inproc";
    assert_int_equal(on_gpu(1024, shared, NULL, NULL), 16); // 16,384 tokens
    assert_int_equal(on_gpu(1024, shared, "stages.count=1", NULL), 16);
    assert_int_equal(on_gpu(1024, shared, "stages.microbatch=4", NULL), 4);
    assert_int_equal(on_gpu(1024, shared, "stages.replicas=8", NULL), 8); // one for each
    assert_int_equal(on_gpu(1024, shared, "train.batch_tokens=6144", NULL), 6);
    assert_int_equal(on_gpu(1024, shared, "model.context=32768", NULL), 1);
    /* As before: runs whose record has no size. */
    assert_int_equal(on_gpu(1024, shared, NULL, NULL), 16);
    assert_int_equal(strait_run_choose_microbatch_before(&run), 2);
}

/* Filling and draining cost more where stages wait for each other. */
static void stages_on_other_machines_have_more_microbatches(void **state) {
    (void)state;
    assert_int_equal(on_gpu(1024, NULL, NULL, NULL), 4);
    assert_int_equal(on_gpu(1024, "stages.schedule=1f1b", NULL, NULL), 2);
    assert_int_equal(on_gpu(4096, NULL, NULL, NULL), 2); // kernels of wide models are larger
    assert_int_equal(on_gpu(1024, "train.batch_tokens=1048576", NULL, NULL), 16);
    /* Slow links, other devices and the meter count as other machines. */
    assert_int_equal(on_gpu(1024, "link.transport=inproc", "link.emulate.delay=50ms", NULL), 4);
    assert_int_equal(on_gpu(1024, "link.transport=inproc", "link.meter.rate=200mbit", NULL), 4);
    assert_int_equal(
        on_gpu(1024, "link.transport=inproc", "device.ordinal=[0,1,2,3,0,1,2,3]", NULL), 4);
}

/* Of 64 microbatches of one sequence, each of 16 replicas computes 4, between ends of a step that
 * are as long as for one replica. A stage without replicas computes all 64. */
static void replicas_share_the_microbatches_of_a_step(void **state) {
    (void)state;
    assert_int_equal(on_gpu(1024, "stages.replicas=16", "stages.groups=16", NULL), 1);
    assert_int_equal(
        on_gpu(1024, "stages.replicas=[1,16,16,16,16,16,16,16]", "stages.groups=16", NULL), 4);
    assert_int_equal(on_gpu(1024, "stages.replicas=3", "link.transport=inproc", NULL), 16);
}

static void schedule_names_select_kinds(void **state) {
    (void)state;
    static const struct {
        const char *set;
        strait_schedule_kind kind;
    } cases[] = {{"stages.schedule=auto", STRAIT_SCHEDULE_SPLIT},
                 {"stages.schedule=fill-drain", STRAIT_SCHEDULE_FILL},
                 {"stages.schedule=1f1b", STRAIT_SCHEDULE_1F1B},
                 {"stages.schedule=1f1b-window", STRAIT_SCHEDULE_WINDOW},
                 {"train.recompute=true", STRAIT_SCHEDULE_WINDOW}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_OK(make(cases[i].set, NULL, NULL));
        assert_int_equal(plan.schedule, cases[i].kind);
        const strait_stage_spec stage = strait_run_plan_stage(&plan, 0, 3);
        assert_int_equal(stage.n_slots, 3);
        assert_int_equal(stage.can_defer, 0); // a single stage defers nothing
    }
    CHECK_OK(make("stages.count=2", NULL, NULL));
    assert_int_equal(strait_run_plan_stage(&plan, 1, 2).can_defer, 1);
}

static void rejects_sizes_that_do_not_fit(void **state) {
    (void)state;
    CHECK_FAILS(make("stages.count=9", NULL, NULL), STRAIT_ECONFIG, "more than model.layers (8)");
    CHECK_FAILS(make("stages.count=2", "model.tied=true", NULL), STRAIT_ECONFIG, "model.tied");
    CHECK_FAILS(make("train.recompute=true", "stages.schedule=1f1b-split", "stages.count=2"),
                STRAIT_ECONFIG, "choose 1f1b-window");
    CHECK_FAILS(make("stages.count=2", "stages.split=[4,3]", NULL), STRAIT_ECONFIG, "split");
    CHECK_FAILS(make("stages.count=2", "stages.split=[4,3,1]", NULL), STRAIT_ECONFIG, "split");
    CHECK_FAILS(make("train.batch_tokens=1048576", "stages.microbatch=1", "model.context=8"),
                STRAIT_ECONFIG, "raise stages.microbatch");
    CHECK_OK(make(NULL, NULL, NULL));
    run.train.batch_tokens = 500; // the checks of run files would have rejected it
    CHECK_FAILS(strait_run_plan_init(&run, 0, &plan), STRAIT_ECONFIG, "multiple of model.context");
    CHECK_OK(make("stages.count=2", NULL, NULL));
    (void)snprintf(run.link.codec.name, sizeof run.link.codec.name, "morse");
    CHECK_FAILS(strait_run_plan_init(&run, 0, &plan), STRAIT_ECONFIG, "morse");
    run.train.batch_tokens = 512;
    run.stages.microbatch = 5;
    CHECK_FAILS(strait_run_plan_init(&run, 0, &plan), STRAIT_ECONFIG, "must divide the 32");
}

static void codecs_differ_in_boundary_and_slots_only(void **state) {
    (void)state;
    CHECK_OK(make("stages.count=4", "link.codec.name=int8", "link.codec.feedback=true"));
    const strait_codec_spec first = strait_run_plan_codec(&plan, 0, 2);
    strait_codec_spec last = strait_run_plan_codec(&plan, 2, 5);
    assert_int_equal(last.boundary, 2);
    assert_int_equal(last.n_slots, 5);
    assert_int_equal(last.has_feedback, 1);
    assert_int_equal(last.rows, plan.microbatch * 16);
    last.boundary = 0;
    last.n_slots = 2;
    assert_memory_equal(&first, &last, sizeof first);
}

/* The same model in `n_stages` stages with a codec. */
static strait_err make_with(const char *codec, int n_stages) {
    char text[400];
    const int n = snprintf(
        text, sizeof text,
        "model: {width: 32, layers: 8, heads: 2, ffn: 48, context: 16, vocab: 64}\n"
        "train: {batch_tokens: 512}\nstages: {count: %d}\nlink: {codec: {%s}}\n",
        n_stages, codec);
    CHECK_OK(strait_run_init_text("r.yaml", text, (size_t)n, NULL, 0, &run));
    return strait_run_plan_init(&run, 100, &plan);
}

static void shape_is_adapted_to_the_codec(void **state) {
    (void)state;
    CHECK_OK(make_with("name: resbm, keep: 4", 4));
    assert_int_equal(plan.shape.bottleneck, 0);
    CHECK_OK(make_with("name: resbm, variant: b, keep: 4", 4));
    assert_int_equal(plan.shape.bottleneck, 4);
    assert_int_equal(plan.shape.subspace, 0);
    CHECK_OK(make_with("name: resbm, variant: b, keep: 4", 1));
    assert_int_equal(plan.shape.bottleneck, 0); // a single stage has no boundary
    CHECK_OK(make_with("name: subspace, variant: factored, keep: 4", 2));
    assert_int_equal(plan.shape.subspace, 4);
    CHECK_FAILS(make_with("name: subspace, variant: code", 2), STRAIT_ECONFIG,
                "choose another variant");
}

/* Variant context of strait turns on the additions to the model that it was tuned with. */
static void context_variant_selects_its_model(void **state) {
    (void)state;
    CHECK_OK(make_with("name: strait", 4));
    assert_string_equal(plan.codec.variant, "context");
    assert_int_equal(plan.shape.conv, 4);
    assert_true(plan.shape.has_token_tables && plan.shape.has_value_tables);
    assert_true(plan.shape.has_qkv_conv && !plan.codec.has_gates);
    assert_int_equal(plan.codec.gate_width, 8);
    run.model.conv = 0; // without convolutions
    CHECK_OK(strait_run_plan_init(&run, 0, &plan));
    assert_false(plan.shape.has_qkv_conv);
    CHECK_OK(make_with("name: strait", 4));
    assert_int_equal(plan.shape.local_every, 1);
    assert_int_equal(plan.codec.keep, 31);
    assert_int_equal(plan.codec.seq_len, 16);
    assert_true(strait_run_plan_needs_tokens(&plan, 2)); // for the token tables of the model
    CHECK_OK(make_with("name: strait, variant: tied", 4));
    assert_int_equal(plan.codec.keep, 32);
    assert_int_equal(plan.shape.conv, 0);
    assert_int_equal(plan.shape.local_every, 0);
    CHECK_OK(make("model.conv=2", "model.anchors=true",
                  "model.local_every=4")); // without a codec as well
    assert_int_equal(plan.shape.conv, 2);
    assert_int_equal(plan.shape.local_every, 4);
    CHECK_OK(make("stages.count=2", NULL, NULL));
    assert_false(strait_run_plan_needs_tokens(&plan, 1));
    run.model.anchors = 1;
    (void)snprintf(run.link.codec.name, sizeof run.link.codec.name, "subspace");
    CHECK_FAILS(strait_run_plan_init(&run, 0, &plan), STRAIT_ECONFIG, "model.anchors would leave");
    (void)snprintf(run.link.codec.variant, sizeof run.link.codec.variant, "factored");
    CHECK_FAILS(strait_run_plan_init(&run, 0, &plan), STRAIT_ECONFIG, "model.anchors change");
}

/* Rows of tables: the given number or the rule's; the same in model, codec and counts. */
static void tables_get_their_rows(void **state) {
    (void)state;
    strait_run_plan_count bounded, whole;
    CHECK_OK(make_with("name: strait", 4));
    assert_int_equal(plan.shape.table_rows, 0); // one per token id
    CHECK_OK(strait_run_plan_count_stage(&plan, 1, &whole));
    run.model.table_rows = 24;
    CHECK_OK(strait_run_plan_init(&run, 0, &plan));
    assert_int_equal(plan.shape.table_rows, 24);
    assert_int_equal(plan.codec.table_rows, 24);
    CHECK_OK(strait_run_plan_count_stage(&plan, 1, &bounded));
    assert_int_equal(whole.tables * 24, bounded.tables * plan.shape.vocab);
    assert_int_equal(whole.all - bounded.all, whole.tables - bounded.tables);
    run.model.table_rows = plan.shape.vocab;
    CHECK_OK(strait_run_plan_init(&run, 0, &plan));
    assert_int_equal(plan.shape.table_rows, 0); // described as the same model
    CHECK_OK(make("model.table_rows=24", NULL, NULL));
    assert_int_equal(plan.shape.table_rows, 0); // nothing has tables
    CHECK_OK(make("model.anchors=true", "model.vocab=50257", NULL));
    assert_int_equal(plan.shape.table_rows, 6144);
    CHECK_OK(make("model.anchors=true", "model.vocab=50257", "model.table_rows=50257"));
    assert_int_equal(plan.shape.table_rows, 0);
}

static void check_group(strait_optim_spec optim, strait_role role, double rate, double decay) {
    CHECK_NEAR((double)optim.groups[role].learning_rate, rate, 1e-6 * rate);
    CHECK_NEAR((double)optim.groups[role].learning_rate * (double)optim.groups[role].weight_decay,
               decay, 1e-6 * decay);
}

/* Residual output projections and codecs have their own learning rates; weight decay is the same.
 */
static void learning_rates_differ_by_role(void **state) {
    (void)state;
    CHECK_OK(make_with("name: strait, rule: 1", 4)); // AdamW: one learning rate
    check_group(strait_run_plan_optim(&plan, 1), STRAIT_ROLE_RESIDUAL_OUT, 1e-3, 1e-4);
    check_group(strait_run_plan_optim(&plan, 1), STRAIT_ROLE_BOUNDARY, 1e-3, 1e-4);
    check_group(strait_run_plan_optim(&plan, 1), STRAIT_ROLE_ENCODER_BASIS, 1e-3, 1e-4);
    run.train.learning_rate = 0.06;
    run.train.weight_decay = 0.05;
    run.train.residual_out_learning_rate = 0.009;
    run.train.boundary_learning_rate = 0.03;
    run.train.value_learning_rate = 0.03;
    CHECK_OK(strait_run_plan_init(&run, 0, &plan));
    for (int stage = 0; stage < 4; stage++) {
        const strait_optim_spec optim = strait_run_plan_optim(&plan, stage);
        check_group(optim, STRAIT_ROLE_MATRIX, 0.06, 0.003);
        check_group(optim, STRAIT_ROLE_RESIDUAL_OUT, stage < 3 ? 0.009 : 0.06, 0.003);
        check_group(optim, STRAIT_ROLE_BOUNDARY, 0.03, 0.003);
        CHECK_NEAR((double)optim.groups[STRAIT_ROLE_VALUES].learning_rate, 0.03, 1e-8);
        CHECK_NEAR((double)optim.groups[STRAIT_ROLE_TOKEN_TABLE].learning_rate, 1e-3, 1e-10);
    }
    run.train.anchor_learning_rate = 0;
    run.train.anchor_steps = 375;
    run.train.encoder_basis_learning_rate = run.train.mixing_learning_rate = 0;
    CHECK_OK(strait_run_plan_init(&run, 0, &plan));
    const strait_optim_group anchors = strait_run_plan_optim(&plan, 1)
                                           .groups[STRAIT_ROLE_TOKEN_TABLE];
    CHECK(anchors.learning_rate == 0 && anchors.steps == 375);
    check_group(strait_run_plan_optim(&plan, 1), STRAIT_ROLE_ENCODER_BASIS, 0, 0);
    check_group(strait_run_plan_optim(&plan, 1), STRAIT_ROLE_MIXING, 0, 0);
}

/* Convolutions and mixing matrices follow the learning rate of gains unless they have their own;
 * none of the three has weight decay. */
static void convolutions_and_mixing_follow_gains(void **state) {
    (void)state;
    static const strait_role roles[] = {STRAIT_ROLE_GAIN, STRAIT_ROLE_CONV, STRAIT_ROLE_MIXING};
    CHECK_OK(make_with("name: strait, rule: 1", 4));
    for (int i = 0; i < 3; i++)
        check_group(strait_run_plan_optim(&plan, 1), roles[i], 1e-3, 0);
    run.train.conv_learning_rate = 3e-3;
    run.train.mixing_learning_rate = 2e-4;
    CHECK_OK(strait_run_plan_init(&run, 0, &plan));
    static const double rates[] = {1e-3, 3e-3, 2e-4};
    for (int i = 0; i < 3; i++)
        check_group(strait_run_plan_optim(&plan, 1), roles[i], rates[i], 0);
}

/* AdamW has two moments for every trained parameter of model and codecs. */
static void parameters_and_moments_are_counted(void **state) {
    (void)state;
    static const struct {
        const char *codec;
        int more; // per boundary
    } cases[] = {{"name: none", 0},
                 {"name: resbm, variant: a, keep: 4", 2 * (256 * 32 + 4 * 256)},
                 {"name: resbm, variant: b, keep: 4", 2 * 32 * 4},
                 {"name: strait, variant: tied, keep: 4, hidden: 16, anchors: 8",
                  2 * 4 * 32 + 16 * 4 + 32 * 16 + 64 * 8 + 32 * 8},
                 {"name: strait, rule: 1, keep: 3, hidden: 16, encoder: 9, context: 5",
                  3 * 32 + 9 * 32 + 3 * 9 + 6 + 15 * 32 + 16 * 15 + 32 * 16 +
                      2 * 64 * 32}}; // M: 9 at two of 3; G
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t n = 0;
        size_t moments = 0;
        CHECK_OK(make_with(cases[i].codec, 4));
        CHECK_OK(strait_run_plan_params(&plan, &n));
        assert_int_equal(n, strait_shape_params(&plan.shape) + (int64_t)3 * cases[i].more);
        for (int stage = 0; stage < 4; stage++) {
            strait_runner_memory memory;
            CHECK_OK(strait_runner_plan(&plan, stage, 2, &memory));
            moments += memory.optimizer;
        }
        CHECK_NEAR((double)moments, 8.0 * (double)n, 0.05 * 8.0 * (double)n);
        assert_true(moments >= 8 * (size_t)n);
    }
}

/* The plan counts the scratch memory that a device needs for its kernels. */
static void counts_scratch_memory_of_the_device(void **state) {
    (void)state;
    strait_runner_memory cpu, cuda;
    CHECK_OK(make("device.kind=cpu", NULL, NULL));
    CHECK_OK(strait_runner_plan(&plan, 0, 1, &cpu));
    assert_int_equal(plan.scratch_bytes, 0);
    CHECK_OK(make("device.kind=cuda", "device.precision=fp32", NULL));
    const size_t capacity = plan.scratch_bytes; // 0 in a build without CUDA
    CHECK_OK(strait_runner_plan(&plan, 0, 1, &cuda));
    plan.scratch_bytes = 0;
    CHECK_OK(strait_runner_plan(&plan, 0, 1, &cpu));
    assert_int_equal(cuda.activations, cpu.activations + capacity);
    /* The gradient of attention has an integer for each of 32 values of queries of 65,536 x 16
     * tokens. */
    CHECK_OK(make("device.kind=cuda", "train.batch_tokens=1048576", "stages.microbatch=65536"));
    const size_t sums = (size_t)4 * 32 * 1048576;
    assert_true(capacity == 0 || (plan.scratch_bytes >= sums && plan.scratch_bytes < 2 * sums));
}

/* One rate is for all, as many as stages for these, as many as replicas for each. */
static void homes_have_rates(void **state) {
    (void)state;
    CHECK_OK(make("stages.count=2", "link.emulate.up=80mbit", "link.emulate.down=[1gbit, 10mbit]"));
    CHECK_NEAR(strait_run_plan_emulate(&plan, 1, 0).up_bps, 80e6, 0);
    CHECK_NEAR(strait_run_plan_emulate(&plan, 0, 0).down_bps, 1e9, 0);
    CHECK_NEAR(strait_run_plan_emulate(&plan, 1, 0).down_bps, 10e6, 0);
    CHECK_OK(make("stages.count=2", "stages.replicas=[1,2]", "link.emulate.up=1mbit,2mbit,3mbit"));
    CHECK_NEAR(strait_run_plan_emulate(&plan, 1, 0).up_bps, 2e6, 0);
    CHECK_NEAR(strait_run_plan_emulate(&plan, 1, 1).up_bps, 3e6, 0);
    CHECK_NEAR(strait_run_plan_emulate(&plan, 1, 7).up_bps, 3e6, 0); // of a swarm
    CHECK_OK(make("stages.count=2", "stages.replicas=[1,2]", "link.emulate.up=1mbit,2mbit"));
    CHECK_NEAR(strait_run_plan_emulate(&plan, 1, 1).up_bps, 2e6, 0);
    CHECK(!strait_emulate_is_on(&plan.emulate));
    CHECK_FAILS(make("stages.count=2", "link.emulate.up=1mbit,2mbit,3mbit", NULL), STRAIT_ECONFIG,
                "link.emulate.up has 3 rates for 2 stages and 2 replicas");
    CHECK_FAILS(make("link.emulate.down=fast", NULL, NULL), STRAIT_ECONFIG,
                "link.emulate.down: \"fast\" is not a");
}

/* Workers cannot check the moments of others; in a local run all replicas are the user's own. */
static void a_swarm_averages_no_optimizer_state(void **state) {
    (void)state;
    CHECK_OK(make("train.outer.sync_every=4", NULL, NULL));
    CHECK_OK(strait_run_plan_check_swarm(&plan));
    CHECK_OK(make("train.outer.sync_every=4", "train.outer.average_state=moments", NULL));
    CHECK_FAILS(strait_run_plan_check_swarm(&plan), STRAIT_ECONFIG, "average_state: a worker");
    CHECK_OK(make("train.outer.average_state=moments", NULL, NULL)); // averages nothing
    CHECK_OK(strait_run_plan_check_swarm(&plan));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_are_split_over_stages),
        cmocka_unit_test(chooses_microbatches_for_the_pipeline),
        cmocka_unit_test(stages_that_share_a_gpu_have_large_microbatches),
        cmocka_unit_test(stages_on_other_machines_have_more_microbatches),
        cmocka_unit_test(replicas_share_the_microbatches_of_a_step),
        cmocka_unit_test(schedule_names_select_kinds),
        cmocka_unit_test(rejects_sizes_that_do_not_fit),
        cmocka_unit_test(codecs_differ_in_boundary_and_slots_only),
        cmocka_unit_test(shape_is_adapted_to_the_codec),
        cmocka_unit_test(tables_get_their_rows),
        cmocka_unit_test(context_variant_selects_its_model),
        cmocka_unit_test(learning_rates_differ_by_role),
        cmocka_unit_test(convolutions_and_mixing_follow_gains),
        cmocka_unit_test(parameters_and_moments_are_counted),
        cmocka_unit_test(counts_scratch_memory_of_the_device),
        cmocka_unit_test(homes_have_rates),
        cmocka_unit_test(a_swarm_averages_no_optimizer_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
