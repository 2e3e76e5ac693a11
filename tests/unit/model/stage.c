/* stage.c - splitting, recomputing and deferring give the same bits; memory and allocation. */
#include "tiny.h"

#include <math.h>

enum {
    SEQUENCES = 2,
    SEQ_LEN = 8
};

typedef struct outcome {
    double loss;
    float *grads; // of all parameters, concatenated
    size_t n;
} outcome;

static void collect(struct strait_stage *stage, outcome *out) {
    int n = 0;
    const strait_param *params = strait_stage_params(stage, &n);
    for (int i = 0; i < n; i++) {
        const size_t count = (size_t)(params[i].grad.rows * params[i].grad.cols);
        CHECK_OK(strait_alloc_grow((void **)&out->grads, out->n, out->n + count, sizeof(float),
                                   "gradients"));
        memcpy(out->grads + out->n, params[i].grad.data, count * sizeof(float));
        out->n += count;
    }
}

static struct strait_stage *open_range(struct strait_backend *backend, strait_stage_spec spec,
                                       int first, int last) {
    struct strait_stage *stage = NULL;
    spec.layers = (strait_layer_range){first, last};
    CHECK_OK(strait_stage_open(&spec, backend, &stage));
    tiny_randomise(stage, 11);
    return stage;
}

static outcome run_whole(struct strait_backend *backend, strait_stage_spec spec,
                         tiny_batch *batch) {
    outcome out = {0};
    struct strait_stage *stage = open_range(backend, spec, 0, spec.shape.layers);
    out.loss = tiny_loss(stage, batch, 1);
    collect(stage, &out);
    strait_stage_close(&stage);
    return out;
}

static void check_equal(outcome *a, outcome *b) {
    assert_true(a->loss == b->loss);
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->grads, b->grads, a->n * sizeof(float));
    strait_alloc_free(b->grads);
}

/* Two stages joined by plain copies; with `defers`, weight gradients are computed at the end. */
static outcome run_split(struct strait_backend *backend, strait_stage_spec spec, tiny_batch *batch,
                         int split_at, int defers) {
    outcome out = {0};
    const int64_t n = spec.n_sequences * spec.seq_len;
    const strait_tensor tokens = tiny_ids(batch->tokens, n);
    spec.can_defer = defers;
    struct strait_stage *front = open_range(backend, spec, 0, split_at);
    struct strait_stage *back = open_range(backend, spec, split_at, spec.shape.layers);
    strait_tensor crossing, losses;
    CHECK_OK(strait_stage_forward(front, 0, tokens));
    CHECK_OK(strait_stage_output(front, &crossing));
    memcpy(strait_stage_input(back, 0).data, crossing.data, strait_tensor_bytes(crossing));
    CHECK_OK(strait_stage_forward(back, 0, tokens));
    CHECK_OK(strait_stage_loss(back, tiny_ids(batch->targets, n), 1.0f / (float)n, &losses));
    CHECK_OK(strait_stage_backward(back, 0, defers));
    CHECK_OK(strait_stage_backward_input(back, 0));
    memcpy(strait_stage_output_gradient(front).data, strait_stage_input_gradient(back).data,
           strait_tensor_bytes(crossing));
    CHECK_OK(strait_stage_backward(front, 0, defers));
    CHECK_OK(strait_stage_backward_input(front, 0));
    CHECK_OK(strait_stage_backward_embedding(front, tokens));
    if (defers) {
        CHECK_OK(strait_stage_backward_weights(front, 0));
        CHECK_OK(strait_stage_backward_weights(back, 0));
    }
    for (int64_t i = 0; i < n; i++)
        out.loss += ((const float *)losses.data)[i];
    out.loss /= (double)n;
    collect(front, &out);
    collect(back, &out);
    strait_stage_close(&front);
    strait_stage_close(&back);
    return out;
}

static void check_shape(strait_shape shape) {
    struct strait_backend *backend = tiny_backend(0);
    strait_stage_spec spec = tiny_spec(shape, SEQUENCES, SEQ_LEN);
    tiny_batch batch;
    tiny_fill(&batch, &shape, 3);
    outcome whole = run_whole(backend, spec, &batch);
    assert_true(whole.loss > 0.5);

    spec.recomputes = 1;
    outcome again = run_whole(backend, spec, &batch);
    check_equal(&whole, &again);
    spec.recomputes = 0;
    for (int split_at = 1; split_at < shape.layers; split_at++) {
        for (int defers = 0; defers <= 1; defers++) {
            outcome parts = run_split(backend, spec, &batch, split_at, defers);
            check_equal(&whole, &parts);
        }
    }
    strait_alloc_free(whole.grads);
    strait_backend_close(&backend);
}

static void splitting_and_recomputing_keep_the_bits(void **state) {
    (void)state;
    check_shape(tiny_llama());
    check_shape(tiny_yardstick());
    check_shape(tiny_local(tiny_yardstick(), 1));
    check_shape(tiny_local(tiny_llama(), 2));
    check_shape(tiny_local(tiny_yardstick(), 2));
}

static float input_at(const struct strait_stage *stage, strait_tensor x, int64_t token) {
    const int64_t width = strait_stage_get_spec(stage)->shape.width;
    return ((const float *)x.data)[token * width];
}

/* The output for one sequence does not depend on the sequence before it in the batch. */
static void sequences_of_a_batch_are_independent(void **state) {
    (void)state;
    struct strait_backend *backend = tiny_backend(0);
    const strait_shape shape = tiny_local(tiny_yardstick(), 1);
    const strait_stage_spec spec = tiny_spec(shape, SEQUENCES, SEQ_LEN);
    struct strait_stage *stage = open_range(backend, spec, 0, 2);
    tiny_batch batch;
    strait_tensor output;
    float first[2], second[2];
    for (int pass = 0; pass < 2; pass++) {
        tiny_fill(&batch, &shape, 3);
        if (pass == 1) batch.tokens[SEQ_LEN - 1] = (batch.tokens[SEQ_LEN - 1] + 1) % 37;
        const strait_tensor ids = tiny_ids(batch.tokens, (int64_t)SEQUENCES * SEQ_LEN);
        CHECK_OK(strait_stage_forward(stage, 0, ids));
        CHECK_OK(strait_stage_output(stage, &output));
        first[pass] = input_at(stage, output, SEQ_LEN - 1);
        second[pass] = input_at(stage, output, SEQ_LEN);
    }
    assert_true(first[0] != first[1]);
    assert_true(second[0] == second[1]);
    strait_stage_close(&stage);
    strait_backend_close(&backend);
}

static void fast_kernels_match_the_reference(void **state) {
    (void)state;
    const strait_shape shape = tiny_local(tiny_yardstick(), 2);
    const strait_stage_spec spec = tiny_spec(shape, SEQUENCES, SEQ_LEN);
    tiny_batch batch;
    tiny_fill(&batch, &shape, 3);
    struct strait_backend *plain = tiny_backend(1);
    struct strait_backend *fast = tiny_backend(0);
    outcome a = run_whole(plain, spec, &batch);
    outcome b = run_whole(fast, spec, &batch);
    CHECK_NEAR(a.loss, b.loss, 1e-5);
    for (size_t i = 0; i < a.n; i++)
        CHECK_NEAR((double)a.grads[i], (double)b.grads[i], 2e-5);
    strait_alloc_free(a.grads);
    strait_alloc_free(b.grads);
    strait_backend_close(&plain);
    strait_backend_close(&fast);
}

static void passes_do_not_allocate(void **state) {
    (void)state;
    struct strait_backend *backend = tiny_backend(0);
    const strait_stage_spec spec = tiny_spec(tiny_llama(), SEQUENCES, SEQ_LEN);
    tiny_batch batch;
    tiny_fill(&batch, &spec.shape, 3);
    struct strait_stage *stage = open_range(backend, spec, 0, spec.shape.layers);
    const int64_t before = strait_alloc_count();
    (void)tiny_loss(stage, &batch, 1);
    assert_int_equal(strait_alloc_count(), before);
    strait_stage_close(&stage);
    strait_backend_close(&backend);
}

/* After zero_gradients, values of earlier steps (here NaN) do not reach the new gradients: with two
 * microbatches, and logits in several chunks. */
static void zero_gradients_discards_old_values(void **state) {
    (void)state;
    strait_shape shapes[] = {tiny_llama(), tiny_local(tiny_yardstick(), 1), tiny_llama()};
    shapes[2].is_tied = 1;
    struct strait_backend *backend = tiny_backend(0);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        strait_stage_spec spec = tiny_spec(shapes[i], 12, 12);
        spec.logit_bytes = 1;
        tiny_batch batch;
        tiny_fill(&batch, &spec.shape, 3);
        outcome first = {0}, second = {0};
        struct strait_stage *stage = open_range(backend, spec, 0, spec.shape.layers);
        first.loss = tiny_loss(stage, &batch, 1) + tiny_loss(stage, &batch, 1);
        collect(stage, &first);
        int n = 0;
        strait_param *params = strait_stage_params(stage, &n);
        for (int p = 0; p < n; p++)
            CHECK_OK(backend->kernels->fill(strait_stage_stream(stage), params[p].grad, NAN));
        CHECK_OK(strait_stage_zero_gradients(stage));
        second.loss = tiny_loss(stage, &batch, 1) + tiny_loss(stage, &batch, 1);
        collect(stage, &second);
        check_equal(&first, &second);
        strait_alloc_free(first.grads);
        strait_stage_close(&stage);
    }
    strait_backend_close(&backend);
}

static void plan_reports_memory(void **state) {
    (void)state;
    strait_stage_spec spec = tiny_spec(tiny_llama(), SEQUENCES, SEQ_LEN);
    strait_stage_memory memory, less;
    CHECK_OK(strait_stage_plan(&spec, &memory));
    const size_t weights = (size_t)strait_shape_params(&spec.shape) * sizeof(float);
    assert_in_range(memory.weights, weights, weights + 256 * 64);
    assert_in_range(memory.gradients, weights, weights + 256 * 64);
    spec.recomputes = 1;
    CHECK_OK(strait_stage_plan(&spec, &less));
    assert_true(less.activations < memory.activations);
    spec.can_defer = 1;
    CHECK_FAILS(strait_stage_plan(&spec, &less), STRAIT_EINVAL, "exclude each other");
}

/* A schedule: pairs of a letter and a microbatch. F: forward, B: backward with weight gradients,
 * I: backward that defers them, W: the deferred weight gradients. */
typedef struct schedule {
    const char *text;
    int can_defer;
} schedule;

static void write_noise(strait_tensor t, uint64_t seed) {
    strait_rng_normals((strait_rng){seed, 9}, 0, t.data, (size_t)(t.rows * t.cols));
}

/* Runs a schedule; writes the gradients of the inputs to d_inputs. */
static outcome run_schedule(struct strait_backend *backend, strait_stage_spec spec, schedule plan,
                            tiny_batch *batch, float *d_inputs) {
    outcome out = {0};
    const strait_tensor tokens = tiny_ids(batch->tokens, spec.n_sequences * spec.seq_len);
    spec.n_slots = 3;
    spec.can_defer = plan.can_defer;
    struct strait_stage *stage = open_range(backend, spec, 1, spec.shape.layers - 1);
    CHECK_OK(strait_stage_zero_gradients(stage));
    for (const char *at = plan.text; *at != 0; at += 2) {
        const int microbatch = at[1] - '0', slot = microbatch % 3;
        const strait_tensor d = strait_stage_input_gradient(stage);
        strait_tensor output;
        if (*at == 'F') {
            write_noise(strait_stage_input(stage, slot), (uint64_t)microbatch);
            CHECK_OK(strait_stage_forward(stage, slot, tokens));
            CHECK_OK(strait_stage_output(stage, &output));
        } else if (*at == 'W') {
            CHECK_OK(strait_stage_backward_weights(stage, slot));
        } else {
            write_noise(strait_stage_output_gradient(stage), (uint64_t)microbatch + 10);
            CHECK_OK(strait_stage_backward(stage, slot, *at == 'I'));
            CHECK_OK(strait_stage_backward_input(stage, slot));
            memcpy(d_inputs + microbatch * d.rows * d.cols, d.data, strait_tensor_bytes(d));
        }
    }
    collect(stage, &out);
    strait_stage_close(&stage);
    return out;
}

static void deferred_microbatches_do_not_interfere(void **state) {
    (void)state;
    static const schedule whole = {"F0B0F1B1F2B2F3B3", 0}, split = {"F0F1I0F2I1W0I2F3W1W2I3W3", 1};
    strait_shape shapes[] = {tiny_llama(), tiny_local(tiny_yardstick(), 2)};
    struct strait_backend *backend = tiny_backend(0);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        shapes[i].layers = 4;
        static float d_inputs[2][4 * SEQUENCES * SEQ_LEN * 15];
        const strait_stage_spec spec = tiny_spec(shapes[i], SEQUENCES, SEQ_LEN);
        tiny_batch batch;
        tiny_fill(&batch, &spec.shape, 3);
        outcome a = run_schedule(backend, spec, whole, &batch, d_inputs[0]);
        outcome b = run_schedule(backend, spec, split, &batch, d_inputs[1]);
        check_equal(&a, &b);
        assert_memory_equal(d_inputs[0], d_inputs[1], sizeof d_inputs[0]);
        strait_alloc_free(a.grads);
    }
    strait_backend_close(&backend);
}

/* A slot holds only what the backward pass cannot compute again. */
static void slots_hold_only_what_backward_needs(void **state) {
    (void)state;
    strait_stage_spec spec = tiny_spec(tiny_llama(), 4, 16); // 256 bytes per column
    spec.shape.context = 16;
    const strait_shape *s = &spec.shape;
    const size_t streams = 2 * (size_t)s->width, normed = 2 * (size_t)s->width, rstd = 2;
    const size_t qkv = 48, attended = 24, lse = 4, pre_act = 2 * (size_t)s->ffn;
    const size_t column = 64 * sizeof(float);
    for (spec.can_defer = 0; spec.can_defer <= 1; spec.can_defer++) {
        strait_stage_memory one, two;
        const size_t hidden = spec.can_defer ? (size_t)s->ffn : 0;
        spec.n_slots = 1;
        CHECK_OK(strait_stage_plan(&spec, &one));
        spec.n_slots = 2;
        CHECK_OK(strait_stage_plan(&spec, &two));
        assert_int_equal(two.activations - one.activations,
                         3 * column *
                             (streams + normed + rstd + qkv + attended + lse + pre_act + hidden));
    }
}

static void failed_allocation_leaks_nothing(void **state) {
    (void)state;
    struct strait_backend *backend = tiny_backend(0);
    const strait_stage_spec spec = tiny_spec(tiny_llama(), SEQUENCES, SEQ_LEN);
    strait_err err = STRAIT_ENOMEM;
    for (int64_t n = 1; err != STRAIT_OK; n++) {
        struct strait_stage *stage = NULL;
        assert_true(n < 200);
        strait_alloc_fail_at(n);
        err = strait_stage_open(&spec, backend, &stage);
        strait_alloc_fail_at(0);
        assert_true(err == STRAIT_OK || (err == STRAIT_ENOMEM && stage == NULL));
        strait_stage_close(&stage);
    }
    strait_backend_close(&backend);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splitting_and_recomputing_keep_the_bits),
        cmocka_unit_test(sequences_of_a_batch_are_independent),
        cmocka_unit_test(fast_kernels_match_the_reference),
        cmocka_unit_test(passes_do_not_allocate),
        cmocka_unit_test(zero_gradients_discards_old_values),
        cmocka_unit_test(plan_reports_memory),
        cmocka_unit_test(deferred_microbatches_do_not_interfere),
        cmocka_unit_test(slots_hold_only_what_backward_needs),
        cmocka_unit_test(failed_allocation_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
