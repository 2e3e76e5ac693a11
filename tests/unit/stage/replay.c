/* A stage that was replaced restores an older state and computes the steps since, muted, from the
 * crossings that its neighbours have kept: with every codec it ends at the same bits as a run that
 * was not disturbed, while its neighbours keep their state. */
#include "chain.h"

enum {
    RESTORED = 2, // the step of the state that the replaced stage restores
    FAILED = 5,   // the step in which it was lost
    STEPS = 8
};

static const struct {
    const char *name, *variant;
    int keep, bits, feedback, grassmann_every;
} codecs[] = {
    {"none", "", 0, 0, 0, 0},     {"none", "", 0, 16, 1, 0},        {"int8", "", 0, 0, 0, 0},
    {"int8", "", 0, 0, 1, 0},     {"int4", "", 0, 0, 1, 0},         {"topk", "", 6, 0, 1, 0},
    {"lowrank", "", 0, 0, 0, 0},  {"lowrank", "", 0, 0, 1, 0},      {"resbm", "", 8, 0, 0, 0},
    {"strait", "", 8, 0, 0, 0},   {"subspace", "", 8, 0, 0, 0},     {"subspace", "", 8, 0, 0, 1},
    {"subspace", "", 8, 0, 0, 3}, {"subspace", "full", 8, 0, 0, 3},
};

/* What a coordinator records of each step. */
struct record {
    double loss_sum;
    int n_squares[CHAIN_STAGES];
    float squares[CHAIN_STAGES][256];
    int n_basis;
    float basis[24 * 24];
};

static struct record records[STEPS];

static void configure(const scratch *folder, size_t i, strait_run *run) {
    tiny_run(folder, run);
    run->model.layers = CHAIN_STAGES;
    run->stages.count = CHAIN_STAGES;
    (void)snprintf(run->link.codec.name, sizeof run->link.codec.name, "%s", codecs[i].name);
    (void)snprintf(run->link.codec.variant, sizeof run->link.codec.variant, "%s",
                   codecs[i].variant);
    run->link.codec.keep = codecs[i].keep;
    run->link.codec.bits = codecs[i].bits;
    run->link.codec.feedback = codecs[i].feedback;
    run->link.codec.grassmann_every = codecs[i].grassmann_every;
    if (codecs[i].grassmann_every > 0) run->link.codec.grassmann_rate = 0.1;
    if (strcmp(codecs[i].name, "lowrank") == 0) run->link.codec.rank = 4;
}

static strait_stage_command gradients_of(int64_t step, int mute_prev, int mute_next) {
    return (strait_stage_command){.kind = STRAIT_COMMAND_GRADIENTS,
                                  .gradients = {step, mute_prev, mute_next}};
}

static strait_stage_command update_of(int64_t step) {
    return (strait_stage_command){.kind = STRAIT_COMMAND_UPDATE, .update = {step, 0.5f, 0}};
}

static void note(struct chain *c, struct record *r) {
    r->loss_sum = c->stages[CHAIN_STAGES - 1].reply.gradients.loss_sum;
    for (int i = 0; i < CHAIN_STAGES; i++) {
        const strait_floats *squares = &c->stages[i].reply.gradients.squares;
        assert_in_range(squares->n, 1, 256);
        r->n_squares[i] = squares->n;
        memcpy(r->squares[i], squares->data, (size_t)squares->n * sizeof(float));
    }
}

static int is_basis_due(struct chain *c, int64_t step) {
    return strait_run_plan_updates_basis(strait_service_plan(c->stages[0].service), step);
}

static void propose(struct chain *c, struct record *r) {
    const int last = CHAIN_STAGES - 1;
    memset(&c->stages[0].command, 0, sizeof c->stages[0].command);
    memset(&c->stages[1].command, 0, sizeof c->stages[1].command);
    c->stages[last].command = (strait_stage_command){.kind = STRAIT_COMMAND_PROPOSE_BASIS};
    chain_run_ok(c);
    const strait_floats *basis = &c->stages[last].reply.propose_basis.basis;
    assert_in_range(basis->n, 1, 24 * 24);
    r->n_basis = basis->n;
    memcpy(r->basis, basis->data, (size_t)basis->n * sizeof(float));
}

static strait_stage_command adopt_of(const struct record *r, int64_t step) {
    return (strait_stage_command){
        .kind = STRAIT_COMMAND_ADOPT_BASIS,
        .adopt_basis = {(uint32_t)step, {(float *)(uintptr_t)r->basis, r->n_basis}}};
}

/* One step of all stages. */
static void live_step(struct chain *c, int64_t step) {
    struct record *r = &records[step];
    const strait_stage_command gradients = gradients_of(step, 0, 0);
    const strait_stage_command update = update_of(step);
    chain_command_all(c, &gradients);
    note(c, r);
    chain_command_all(c, &update);
    if (!is_basis_due(c, step + 1)) return;
    propose(c, r);
    const strait_stage_command adopt = adopt_of(r, step + 1);
    chain_command_all(c, &adopt);
}

/* A step that ends in the middle: one stage is lost, the others stop. */
static void interrupted_step(struct chain *c, int64_t step, int lost) {
    for (int i = 0; i < CHAIN_STAGES; i++)
        c->stages[i].command = gradients_of(step, 0, 0);
    c->stages[lost].fails_after = 1;
    c->stages[lost].n_backward = 0;
    chain_run(c);
    c->stages[lost].fails_after = -1;
    assert_int_equal(c->stages[lost].err, STRAIT_EINTERRUPTED);
}

/* One step of the replaced stage alone, compared with the first time. */
static void replayed_step(struct chain *c, int64_t step, int late) {
    struct record *r = &records[step];
    for (int i = 0; i < CHAIN_STAGES; i++)
        c->stages[i].command = (strait_stage_command){
            .kind = STRAIT_COMMAND_RESEND, .resend = {step, i == late + 1, i == late - 1}};
    c->stages[late].command = gradients_of(step, 1, 1);
    chain_run_ok(c);
    const strait_stage_reply *reply = &c->stages[late].reply;
    assert_int_equal(reply->gradients.squares.n, r->n_squares[late]);
    assert_memory_equal(reply->gradients.squares.data, r->squares[late],
                        (size_t)r->n_squares[late] * sizeof(float));
    if (late == CHAIN_STAGES - 1) assert_true(reply->gradients.loss_sum == r->loss_sum);
    for (int i = 0; i < CHAIN_STAGES; i++)
        if (i != late) memset(&c->stages[i].command, 0, sizeof c->stages[i].command);
    c->stages[late].command = update_of(step);
    chain_run_ok(c);
    if (!is_basis_due(c, step + 1)) return;
    if (late == CHAIN_STAGES - 1) { // it computes the same again, and forgets the same gradients
        static struct record again;
        propose(c, &again);
        assert_memory_equal(again.basis, r->basis, (size_t)r->n_basis * sizeof(float));
    }
    c->stages[late].command = adopt_of(r, step + 1);
    chain_run_ok(c);
}

static void undisturbed(const strait_run *run, struct chain_state *states) {
    struct chain c;
    chain_open(&c, run);
    for (int64_t step = 0; step < STEPS; step++)
        live_step(&c, step);
    for (int i = 0; i < CHAIN_STAGES; i++)
        states[i] = chain_save(chain_runner(&c, i));
    chain_close(&c);
}

static void replace_stage(struct chain *c, int late, struct chain_state *restored) {
    chain_connect(c);
    for (int i = 0; i < CHAIN_STAGES; i++) {
        if (i == late) continue;
        const strait_runner_live live = strait_runner_describe_live(chain_runner(c, i));
        assert_int_equal(live.step, FAILED);
        assert_int_equal(live.first_kept, 0);
        CHECK_OK(strait_runner_keep_live(chain_runner(c, i), FAILED));
    }
    chain_load(chain_runner(c, late), restored);
    CHECK_OK(strait_runner_reset(chain_runner(c, late), RESTORED));
    for (int64_t step = RESTORED; step < FAILED; step++)
        replayed_step(c, step, late);
    assert_int_equal(strait_runner_describe_live(chain_runner(c, late)).step, FAILED);
}

/* The neighbours of the next stage that is lost may be replaced ones: they have kept what they
 * computed muted. */
static void disturbed(const strait_run *run, int late, struct chain_state *states) {
    struct chain c;
    struct chain_state restored = {0};
    struct chain_state other = {0};
    chain_open(&c, run);
    for (int64_t step = 0; step < FAILED; step++) {
        if (step == RESTORED) restored = chain_save(chain_runner(&c, late));
        if (step == RESTORED) other = chain_save(chain_runner(&c, late > 0 ? late - 1 : 1));
        live_step(&c, step);
    }
    interrupted_step(&c, FAILED, late);
    replace_stage(&c, late, &restored);
    const int64_t kept = strait_runner_describe_live(chain_runner(&c, late)).first_kept;
    assert_true(kept <= RESTORED);
    interrupted_step(&c, FAILED, 1);
    const int second = late > 0 ? late - 1 : 1;
    chain_connect(&c);
    for (int i = 0; i < CHAIN_STAGES; i++)
        if (i != second) CHECK_OK(strait_runner_keep_live(chain_runner(&c, i), FAILED));
    chain_load(chain_runner(&c, second), &other);
    CHECK_OK(strait_runner_reset(chain_runner(&c, second), RESTORED));
    for (int64_t step = RESTORED; step < FAILED; step++)
        replayed_step(&c, step, second);
    for (int64_t step = FAILED; step < STEPS; step++)
        live_step(&c, step);
    for (int i = 0; i < CHAIN_STAGES; i++)
        states[i] = chain_save(chain_runner(&c, i));
    strait_alloc_free(restored.data);
    strait_alloc_free(other.data);
    chain_close(&c);
}

static void a_replaced_stage_ends_at_the_same_bits(void **state) {
    (void)state;
    static strait_run run;
    scratch folder = scratch_open();
    for (size_t k = 0; k < sizeof codecs / sizeof *codecs; k++) {
        struct chain_state expected[CHAIN_STAGES];
        configure(&folder, k, &run);
        undisturbed(&run, expected);
        for (int late = 0; late < CHAIN_STAGES; late++) {
            struct chain_state states[CHAIN_STAGES];
            disturbed(&run, late, states);
            for (int i = 0; i < CHAIN_STAGES; i++) {
                assert_int_equal(states[i].bytes, expected[i].bytes);
                if (memcmp(states[i].data, expected[i].data, expected[i].bytes) != 0)
                    fail_msg("%s %s (case %zu): stage %d differs after stage %d was replaced",
                             codecs[k].name, codecs[k].variant, k, i, late);
                strait_alloc_free(states[i].data);
            }
        }
        for (int i = 0; i < CHAIN_STAGES; i++)
            strait_alloc_free(expected[i].data);
    }
    scratch_close(&folder);
}

/* An update or a basis that is sent twice is applied once; so is a proposal. */
static void commands_that_are_sent_again_change_nothing(void **state) {
    (void)state;
    static strait_run run;
    struct chain c;
    scratch folder = scratch_open();
    configure(&folder, sizeof codecs / sizeof *codecs - 1, &run); // basis after three steps
    chain_open(&c, &run);
    live_step(&c, 0);
    live_step(&c, 1);
    const strait_stage_command gradients = gradients_of(2, 0, 0);
    const strait_stage_command update = update_of(2);
    static struct record first, second;
    chain_command_all(&c, &gradients);
    assert_int_equal(strait_runner_describe_live(chain_runner(&c, 0)).step, 2);
    assert_true(strait_runner_describe_live(chain_runner(&c, 0)).is_pending);
    CHECK_OK(strait_runner_keep_live(chain_runner(&c, 0), 3)); // the update is sent next
    chain_command_all(&c, &update);
    struct chain_state once = chain_save(chain_runner(&c, 0));
    chain_command_all(&c, &update);
    struct chain_state twice = chain_save(chain_runner(&c, 0));
    assert_memory_equal(once.data, twice.data, once.bytes);
    assert_int_equal(strait_runner_describe_live(chain_runner(&c, 0)).step, 3);
    CHECK_OK(strait_runner_keep_live(chain_runner(&c, 0), 3)); // it lacks only the basis
    CHECK_FAILS(strait_runner_keep_live(chain_runner(&c, 0), 2), STRAIT_EPROTO, "not that of");
    propose(&c, &first);
    propose(&c, &second);
    assert_memory_equal(first.basis, second.basis, (size_t)first.n_basis * sizeof(float));
    const strait_stage_command adopt = adopt_of(&first, 3);
    chain_command_all(&c, &adopt);
    strait_alloc_free(once.data);
    once = chain_save(chain_runner(&c, 0));
    chain_command_all(&c, &adopt);
    strait_alloc_free(twice.data);
    twice = chain_save(chain_runner(&c, 0));
    assert_memory_equal(once.data, twice.data, once.bytes);
    assert_int_equal(strait_runner_describe_live(chain_runner(&c, 0)).step, 3);
    assert_false(strait_runner_describe_live(chain_runner(&c, 0)).is_pending);
    assert_int_equal(strait_runner_describe_live(chain_runner(&c, 0)).first_kept, 0);
    strait_alloc_free(once.data);
    strait_alloc_free(twice.data);
    chain_close(&c);
    scratch_close(&folder);
}

/* A stage refuses to continue at a step that its state does not belong to, and to send again what
 * it has not kept. */
static void rejects_steps_it_does_not_have(void **state) {
    (void)state;
    static strait_run run;
    struct chain c;
    scratch folder = scratch_open();
    configure(&folder, 0, &run);
    chain_open(&c, &run);
    live_step(&c, 0);
    struct strait_runner *runner = chain_runner(&c, 1);
    assert_int_equal(strait_runner_describe_live(runner).step, 1);
    CHECK_FAILS(strait_runner_keep_live(runner, 0), STRAIT_EPROTO, "not that of step 0");
    CHECK_FAILS(strait_runner_keep_live(runner, 2), STRAIT_EPROTO, "not that of step 2");
    CHECK_OK(strait_runner_keep_live(runner, 1));
    CHECK_FAILS(strait_runner_resend(runner, 1, 1, 0), STRAIT_EPROTO, "no longer kept");
    CHECK_OK(strait_runner_resend(runner, 1, 0, 0)); // nothing was asked for
    CHECK_FAILS(strait_runner_resend(chain_runner(&c, 0), 0, 1, 0), STRAIT_EPROTO, "no neighbour");
    chain_close(&c);
    scratch_close(&folder);
}

/* After a step that was skipped, a codec with state is not at any step that can be named. */
static void a_skipped_step_leaves_no_step_to_a_codec_with_state(void **state) {
    (void)state;
    static strait_run run;
    scratch folder = scratch_open();
    for (int has_state = 0; has_state < 2; has_state++) {
        struct chain c;
        configure(&folder, has_state ? 3 : 2, &run); // int8, with feedback and without
        chain_open(&c, &run);
        live_step(&c, 0);
        const strait_stage_command skipped = gradients_of(1, 0, 0);
        const strait_stage_command next = gradients_of(2, 0, 0);
        const strait_stage_command update = update_of(2);
        chain_command_all(&c, &skipped);
        chain_command_all(&c, &next);
        assert_int_equal(strait_runner_describe_live(chain_runner(&c, 1)).step, has_state ? -1 : 1);
        chain_command_all(&c, &update);
        assert_int_equal(strait_runner_describe_live(chain_runner(&c, 1)).step, 3);
        chain_close(&c);
    }
    scratch_close(&folder);
}

/* Without a mesh, as when a spare repeats a stage's work: everything has arrived before. */
static void runs_muted_without_neighbours(void **state) {
    (void)state;
    static strait_run run;
    struct chain c;
    scratch folder = scratch_open();
    configure(&folder, 9, &run);
    chain_open(&c, &run);
    struct chain_state start = chain_save(chain_runner(&c, 1));
    live_step(&c, 0);
    struct chain_state expected = chain_save(chain_runner(&c, 1));
    struct strait_runner *runner = chain_runner(&c, 1);
    strait_service_set_links(c.stages[1].service, NULL, -1, -1);
    chain_load(runner, &start);
    CHECK_OK(strait_runner_reset(runner, 0));
    const int n = (int)strait_service_plan(c.stages[1].service)->n_microbatches;
    for (int side = 0; side < 2; side++) {
        struct strait_runner *giver = chain_runner(&c, side == 0 ? 0 : 2);
        struct strait_boundary *from = side == 0 ? giver->sender : giver->receiver;
        for (int m = 0; m < n; m++) {
            const strait_crossing_view kept = strait_crossing_log_find(strait_boundary_log(from), 0,
                                                                       m);
            struct strait_msg *msg = NULL;
            assert_non_null(kept.data);
            CHECK_OK(strait_msg_open(strait_mesh_pool(c.meshes[0]), STRAIT_MSG_CROSSING, kept.bytes,
                                     &msg));
            msg->boundary = (uint16_t)side;
            msg->microbatch = (uint16_t)m;
            msg->basis = kept.basis;
            memcpy(msg->body, kept.data, kept.bytes);
            CHECK_OK(strait_boundary_deliver(side == 0 ? runner->receiver : runner->sender, &msg));
        }
    }
    memset(&c.stages[0].command, 0, sizeof c.stages[0].command);
    memset(&c.stages[2].command, 0, sizeof c.stages[2].command);
    c.stages[1].command = gradients_of(0, 1, 1);
    chain_run_ok(&c);
    c.stages[1].command = update_of(0);
    chain_run_ok(&c);
    struct chain_state again = chain_save(runner);
    assert_memory_equal(again.data, expected.data, expected.bytes);
    c.stages[1].command = gradients_of(1, 1, 1); // whose crossings nobody gave
    chain_run(&c);
    assert_int_equal(c.stages[1].err, STRAIT_ETIMEDOUT);
    strait_alloc_free(again.data);
    strait_alloc_free(expected.data);
    strait_alloc_free(start.data);
    chain_close(&c);
    scratch_close(&folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_replaced_stage_ends_at_the_same_bits),
        cmocka_unit_test(commands_that_are_sent_again_change_nothing),
        cmocka_unit_test(rejects_steps_it_does_not_have),
        cmocka_unit_test(a_skipped_step_leaves_no_step_to_a_codec_with_state),
        cmocka_unit_test(runs_muted_without_neighbours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
