/* The subspace codec: exact in its span, where the row-wise optimizer keeps the weights. */
#include "optim/optimizer.h"
#include "subspace_rig.h"

/* Row t of T_fixed, as the codec draws it. */
static void fixed_row(int t, float out[D]) {
    strait_rng_normals((strait_rng){4, strait_rng_stream("subspace.fixed")}, (uint64_t)(t * D), out,
                       D);
}

/* C U^T + T_fixed[t], with random C. */
static strait_tensor confined_stream(const struct pair *p) {
    const strait_tensor c = pair_normals(N, K, 6);
    const strait_tensor back = transposed(basis_of(p->sender)), x = product(c, back);
    for (int n = 0; n < N; n++) {
        float fixed[D];
        fixed_row(((const int32_t *)p->tokens.data)[n], fixed);
        for (int i = 0; i < D; i++)
            f32(x)[n * D + i] += fixed[i];
    }
    free(c.data);
    free(back.data);
    return x;
}

static void reconstruction_is_exact(void **state) {
    (void)state;
    static const char *const names[] = {"full", "factored"};
    for (int i = 0; i < 2; i++) {
        struct pair p;
        pair_open(&p, spec_of(names[i]));
        const strait_tensor x = confined_stream(&p), y = pair_tensor(N, D);
        pair_forward(&p, y, x);
        CHECK(distance(x, y) < 3e-7);
        strait_codec_metrics metrics;
        CHECK_OK(strait_codec_read_metrics(p.sender, &p.stream, &metrics));
        CHECK(metrics.residual < 3e-7);
        const strait_tensor g = pair_normals(N, D, 9);
        const strait_tensor expected = projected(g, basis_of(p.sender));
        pair_backward(&p, y, g);
        CHECK(distance(expected, y) < 3e-7);
        free(x.data);
        free(y.data);
        free(g.data);
        free(expected.data);
        pair_close(&p);
    }
}

/* One stage of one layer: x = TE[t] + a W^T, trained towards noise. */
struct toy {
    struct pair p;
    strait_param params[3]; // W, TE, and one that is not constrained
    struct strait_optimizer *opt;
    strait_tensor a, x;
};

static void toy_open(struct toy *toy, const char *optimizer, strait_codec_spec spec) {
    static const struct {
        const char *name;
        strait_role role;
        int64_t rows, cols;
    } shapes[3] = {{"out", STRAIT_ROLE_RESIDUAL_OUT, D, INPUTS},
                   {"table", STRAIT_ROLE_EMBEDDING, VOCAB, D},
                   {"inner", STRAIT_ROLE_MATRIX, D, INPUTS}};
    pair_open(&toy->p, spec);
    for (int i = 0; i < 3; i++) {
        strait_param *p = &toy->params[i];
        (void)strncpy(p->name, shapes[i].name, sizeof p->name - 1);
        p->role = shapes[i].role;
        p->value = pair_normals(shapes[i].rows, shapes[i].cols, (uint64_t)i + 20);
        p->grad = pair_tensor(shapes[i].rows, shapes[i].cols);
    }
    strait_optim_spec how = {
        .ops = strait_optimizer_find(optimizer), .beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f};
    for (int role = 0; role < STRAIT_ROLE_COUNT; role++)
        how.groups[role] = (strait_optim_group){.learning_rate = 1e-3f, .weight_decay = 0.1f};
    how.max_norm = 1;
    CHECK_OK(strait_optimizer_open(&how, toy->p.be, toy->params, 3, &toy->opt));
    CHECK_OK(strait_codec_after_update(toy->p.sender, &toy->p.stream, toy->params, 3));
    toy->x = pair_tensor(N, D);
    toy->a = pair_tensor(N, INPUTS);
}

static void toy_close(struct toy *toy) {
    for (int i = 0; i < 3; i++) {
        free(toy->params[i].value.data);
        free(toy->params[i].grad.data);
    }
    strait_optimizer_close(&toy->opt);
    free(toy->a.data);
    free(toy->x.data);
    pair_close(&toy->p);
}

static void toy_forward(struct toy *toy, int step) {
    const struct strait_kernels *k = toy->p.be->kernels;
    struct strait_stream *s = &toy->p.stream;
    strait_rng_normals((strait_rng){31, (uint64_t)step}, 0, toy->a.data, N * INPUTS);
    CHECK_OK(k->embed(s, toy->x, toy->params[1].value, toy->p.tokens));
    CHECK_OK(k->matmul(s, toy->x, toy->a, toy->params[0].value,
                       (strait_matmul_params){.alpha = 1, .beta = 1, .transpose_b = 1}));
    const strait_tensor y = pair_tensor(N, D);
    pair_forward(&toy->p, y, toy->x);
    free(y.data);
}

static void toy_step(struct toy *toy, int step) {
    const struct strait_kernels *k = toy->p.be->kernels;
    struct strait_stream *s = &toy->p.stream;
    toy_forward(toy, step);
    const strait_tensor g = pair_normals(N, D, (uint64_t)step + 1000);
    for (int i = 0; i < N * D; i++)
        f32(g)[i] = 0.1f * f32(toy->x)[i] + f32(g)[i] * (1 + (float)(i % 7));
    for (int i = 0; i < 3; i++)
        CHECK_OK(k->fill(s, toy->params[i].grad, 0));
    for (int i = 0; i < 3; i += 2)
        CHECK_OK(k->matmul(s, toy->params[i].grad, g, toy->a,
                           (strait_matmul_params){.alpha = 1, .transpose_a = 1}));
    CHECK_OK(k->embed_back(s, toy->params[1].grad, g, toy->p.tokens));
    free(g.data);
    CHECK_OK(strait_codec_project_gradients(toy->p.sender, s, toy->params, 3));
    CHECK_OK(strait_optimizer_clip(toy->opt, s, step));
    CHECK_OK(strait_optimizer_step(toy->opt, s, step, 1));
    CHECK_OK(strait_codec_after_update(toy->p.sender, s, toy->params, 3));
}

static double leak_of(struct toy *toy) {
    strait_codec_metrics metrics;
    CHECK_OK(strait_codec_read_metrics(toy->p.sender, &toy->p.stream, &metrics));
    toy_forward(toy, 5000);
    CHECK_OK(strait_codec_read_metrics(toy->p.sender, &toy->p.stream, &metrics));
    return metrics.residual;
}

/* How often a leak was corrected since the first step. */
static int64_t corrections_of(const struct strait_codec *c) {
    strait_codec_state counters;
    CHECK_OK(strait_codec_get_state(c, SUBSPACE_COUNTERS, &counters));
    return ((const int32_t *)counters.tensor.data)[COUNTER_CORRECTIONS];
}

static double leak_after(const char *optimizer, int steps, strait_codec_spec spec,
                         int64_t *out_corrections) {
    struct toy toy = {0};
    strait_codec_metrics metrics;
    toy_open(&toy, optimizer, spec);
    const strait_tensor free_one = toy.params[2].value;
    const float before = f32(free_one)[0];
    for (int step = 1; step <= steps; step++) {
        toy_step(&toy, step);
        CHECK_OK(strait_codec_read_metrics(toy.p.sender, &toy.p.stream, &metrics));
    }
    CHECK(f32(free_one)[0] != before); // NOLINT: it trains too
    const double leak = leak_of(&toy);
    *out_corrections = corrections_of(toy.p.sender);
    CHECK_OK(strait_codec_read_metrics(toy.p.sender, &toy.p.stream, &metrics));
    assert_int_equal(metrics.basis.corrections, *out_corrections); // what metrics.jsonl shows
    toy_close(&toy);
    return leak;
}

static void row_wise_adamw_stays_in_the_span(void **state) {
    (void)state;
    strait_codec_spec spec = spec_of("full");
    int64_t corrections;
    spec.leak_limit = 100; // measure only
    const double rows = leak_after("adamw-rows", 1000, spec, &corrections);
    assert_int_equal(corrections, 0);
    const double plain = leak_after("adamw", 1000, spec, &corrections);
    assert_int_equal(corrections, 0);
    print_message("  leak after 1000 steps: %.2g row-wise, %.2g plain\n", rows, plain);
    CHECK(rows <= 1e-5);
    CHECK(plain > 1000 * rows && plain > 1e-3);
}

static void leaks_are_corrected_and_counted(void **state) {
    (void)state;
    strait_codec_spec spec = spec_of("full");
    int64_t corrections;
    spec.leak_limit = 1e-3;
    const double bounded = leak_after("adamw", 200, spec, &corrections);
    CHECK(bounded < 5e-3);
    CHECK(corrections > 0 && corrections < 200);
    spec.leak_limit = 100;
    spec.confine_every = 1; // form (b): plain AdamW, projected after each step
    CHECK(leak_after("adamw", 50, spec, &corrections) < 1e-6);
    assert_int_equal(corrections, 0);
}

/* Opens a layer whose weights lie in the subspace, lets x cross once, rounded to bf16 if asked to,
 * and returns what the sender measured; *out_error is ||restored - x|| / ||x||. */
static strait_codec_metrics cross_once(int bits, int is_rounded, double *out_error) {
    struct toy toy = {0};
    strait_codec_metrics seen;
    strait_codec_spec spec = spec_of("full");
    spec.bits = bits;
    toy_open(&toy, "adamw-rows", spec);
    CHECK_OK(strait_codec_after_update(toy.p.sender, &toy.p.stream, toy.params, 3));
    toy_forward(&toy, 1);
    CHECK_OK(strait_codec_read_metrics(toy.p.sender, &toy.p.stream, &seen));
    for (int i = 0; is_rounded && i < N * D; i++) {
        uint32_t word;
        memcpy(&word, &f32(toy.x)[i], sizeof word);
        word = (word + 0x7fff + (word >> 16 & 1)) & 0xffff0000;
        memcpy(&f32(toy.x)[i], &word, sizeof word);
    }
    const strait_tensor y = pair_tensor(N, D);
    pair_forward(&toy.p, y, toy.x);
    CHECK_OK(strait_codec_read_metrics(toy.p.sender, &toy.p.stream, &seen));
    *out_error = distance(toy.x, y);
    free(y.data);
    toy_close(&toy);
    return seen;
}

/* The residual is all that the next stage does not get, the leak only what no code could hold. */
static void rounding_of_the_code_counts_in_the_residual(void **state) {
    (void)state;
    double error;
    const strait_codec_metrics exact = cross_once(32, 0, &error);
    CHECK(exact.residual < 1e-6 && exact.basis.leak < 1e-6 && error < 1e-6);
    const strait_codec_metrics coarse = cross_once(4, 0, &error);
    CHECK(error > 0.01);
    CHECK(fabs(coarse.residual / error - 1) < 1e-3);
    CHECK(coarse.basis.leak < 1e-6);
    CHECK(coarse.basis.error > 0 && coarse.basis.error < 1e-6);
}

/* The ablation: T_fixed crosses with the rest, and what of it lies outside the subspace is lost. */
static void without_the_fixed_part_most_is_lost(void **state) {
    (void)state;
    strait_codec_spec spec = spec_of("full");
    spec.keeps_fixed = 1;
    struct toy toy = {0};
    strait_codec_metrics seen;
    toy_open(&toy, "adamw-rows", spec);
    for (int step = 1; step <= 3; step++) {
        toy_step(&toy, step);
        CHECK_OK(strait_codec_read_metrics(toy.p.sender, &toy.p.stream, &seen));
    }
    const strait_tensor y = pair_tensor(N, D);
    pair_forward(&toy.p, y, toy.x);
    const strait_tensor inside = projected(toy.x, basis_of(toy.p.sender));
    CHECK(distance(inside, y) < 1e-6);
    CHECK(seen.basis.leak > 0.1 && distance(toy.x, y) > 0.1);
    assert_int_equal(corrections_of(toy.p.sender), 0); // no weight is to blame for it
    free(y.data);
    free(inside.data);
    toy_close(&toy);
}

/* The leak of a stream that is rounded to bf16 is within the limit for bf16, and far above the one
 * for f32, under which every step would project the weights. */
static void the_limit_of_leaks_fits_the_type(void **state) {
    (void)state;
    double error;
    strait_codec_spec spec = spec_of("full");
    const double leak = cross_once(32, 1, &error).basis.leak;
    CHECK(leak > 10 * strait_subspace_leak_limit(&spec));
    spec.precision = STRAIT_BF16;
    CHECK(leak < 0.1 * strait_subspace_leak_limit(&spec));
    CHECK(strait_subspace_leak_limit(&spec) < 0.06); // where plain AdamW arrives
    spec.leak_limit = 0.5;
    CHECK(strait_subspace_leak_limit(&spec) == 0.5);
}

/* Form (c) into form (a): W = U Z, table = E U^T + T_fixed: the same function, without a leak. */
static void factored_weights_convert_to_full_ones(void **state) {
    (void)state;
    struct toy toy = {0};
    toy_open(&toy, "adamw-rows", spec_of("full"));
    const strait_tensor u = basis_of(toy.p.sender), back = transposed(u);
    const strait_tensor z = pair_normals(K, INPUTS, 1), e = pair_normals(VOCAB, K, 2);
    const strait_tensor w = product(u, z), table = product(e, back);
    for (int t = 0; t < VOCAB; t++) {
        float fixed[D];
        fixed_row(t, fixed);
        for (int i = 0; i < D; i++)
            f32(table)[t * D + i] += fixed[i];
    }
    memcpy(toy.params[0].value.data, w.data, strait_tensor_bytes(w));
    memcpy(toy.params[1].value.data, table.data, strait_tensor_bytes(table));
    CHECK(leak_of(&toy) < 1e-6);
    CHECK_OK(strait_codec_after_update(toy.p.sender, &toy.p.stream, toy.params, 3));
    CHECK(distance(w, toy.params[0].value) < 1e-6);
    CHECK(distance(table, toy.params[1].value) < 1e-6);
    const strait_tensor all[] = {back, z, e, w, table};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i].data);
    toy_close(&toy);
}

static void rejects_weights_of_other_shapes(void **state) {
    (void)state;
    struct pair p;
    pair_open(&p, spec_of("full"));
    strait_param param = {.name = "w", .role = STRAIT_ROLE_RESIDUAL_OUT};
    param.grad = pair_tensor(D, INPUTS + 1);
    CHECK_FAILS(strait_codec_project_gradients(p.sender, &p.stream, &param, 1), STRAIT_EINVAL,
                "34 inputs, widest is 33");
    param.grad.rows = D - 1;
    CHECK_FAILS(strait_codec_project_gradients(p.sender, &p.stream, &param, 1), STRAIT_EINVAL,
                "23 outputs, the width is 24");
    free(param.grad.data);
    pair_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reconstruction_is_exact),
        cmocka_unit_test(row_wise_adamw_stays_in_the_span),
        cmocka_unit_test(leaks_are_corrected_and_counted),
        cmocka_unit_test(rounding_of_the_code_counts_in_the_residual),
        cmocka_unit_test(the_limit_of_leaks_fits_the_type),
        cmocka_unit_test(without_the_fixed_part_most_is_lost),
        cmocka_unit_test(factored_weights_convert_to_full_ones),
        cmocka_unit_test(rejects_weights_of_other_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
