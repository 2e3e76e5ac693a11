/* Basis updates: what is proposed, what is carried over, and what is rejected. */
#include "subspace_rig.h"

/* The share of ||g||^2 that lies in the span of the basis. */
static double captured(strait_tensor g, strait_tensor u) {
    const strait_tensor code = product(g, u);
    double inside = 0, all = 0;
    for (int i = 0; i < N * K; i++)
        inside += (double)f32(code)[i] * (double)f32(code)[i];
    for (int i = 0; i < N * D; i++)
        all += (double)f32(g)[i] * (double)f32(g)[i];
    free(code.data);
    return inside / all;
}

static void updates_move_the_basis_to_the_gradients(void **state) {
    (void)state;
    struct pair p;
    pair_open(&p, spec_of("full"));
    const strait_tensor thin = pair_normals(N, K, 2), wide = pair_normals(K, D, 3),
                        noise = pair_normals(N, D, 4), g = product(thin, wide),
                        d = pair_tensor(N, D), next = pair_tensor(D, K);
    for (int i = 0; i < N * D; i++)
        f32(g)[i] += 0.05f * f32(noise)[i];
    double before = captured(g, basis_of(p.receiver));
    CHECK(before < 0.5);
    for (uint32_t version = 1; version <= 30; version++) {
        pair_backward(&p, d, g);
        CHECK_OK(strait_codec_basis_propose(p.receiver, &p.stream, f32(next)));
        CHECK_OK(strait_codec_basis_adopt(p.receiver, &p.stream, f32(next), version));
        CHECK_OK(strait_codec_basis_adopt(p.sender, &p.stream, f32(next), version));
        const double after = captured(g, basis_of(p.receiver));
        CHECK(after >= before - 1e-6);
        before = after;
    }
    CHECK(before > 0.99);
    /* Without gradients the basis stays. */
    CHECK_OK(strait_codec_basis_propose(p.receiver, &p.stream, f32(next)));
    CHECK(distance(basis_of(p.receiver), next) < 1e-6);
    CHECK_FAILS(strait_codec_basis_propose(p.sender, &p.stream, f32(next)), STRAIT_EINVAL,
                "receiver of the last boundary");
    const strait_tensor all[] = {thin, wide, noise, g, d, next};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i].data);
    pair_close(&p);
}

/* A non-finite gradient does not move the basis, and is dropped once it was counted. */
static void ignores_non_finite_gradients(void **state) {
    (void)state;
    struct pair p;
    pair_open(&p, spec_of("full"));
    const strait_tensor g = pair_normals(N, D, 4), bad = pair_normals(N, D, 4);
    const strait_tensor d = pair_tensor(N, D), next = pair_tensor(D, K);
    f32(bad)[0] = NAN;
    pair_backward(&p, d, bad);
    CHECK_OK(strait_codec_basis_propose(p.receiver, &p.stream, f32(next)));
    CHECK(distance(basis_of(p.receiver), next) < 1e-6);
    pair_backward(&p, d, bad);
    strait_codec_metrics seen;
    CHECK_OK(strait_codec_read_metrics(p.receiver, &p.stream, &seen));
    CHECK(seen.non_finite > 0);
    pair_backward(&p, d, g);
    CHECK_OK(strait_codec_basis_propose(p.receiver, &p.stream, f32(next)));
    CHECK(distance(basis_of(p.receiver), next) > 1e-3);
    const strait_tensor all[] = {g, bad, d, next};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i].data);
    pair_close(&p);
}

/* Both variants represent the same weights after an update. */
static void carries_weights_over_by_projection(void **state) {
    (void)state;
    struct pair full, factored;
    pair_open(&full, spec_of("full"));
    pair_open(&factored, spec_of("factored"));
    const strait_tensor z = pair_normals(K, INPUTS, 1), e = pair_normals(VOCAB, K, 2);
    const strait_tensor u = pair_tensor(D, K), next = pair_tensor(D, K), g = pair_normals(N, D, 3),
                        d = pair_tensor(N, D);
    memcpy(u.data, basis_of(full.sender).data, strait_tensor_bytes(u));
    const strait_tensor back = transposed(u), w = product(u, z), table = product(e, back);
    pair_backward(&full, d, g);
    CHECK_OK(strait_codec_basis_propose(full.receiver, &full.stream, f32(next)));
    CHECK(distance(u, next) > 0.01);
    CHECK_OK(strait_codec_basis_adopt(full.sender, &full.stream, f32(next), 1));
    CHECK_OK(strait_codec_basis_adopt(factored.sender, &factored.stream, f32(next), 1));
    strait_codec_metrics moved;
    CHECK_OK(strait_codec_read_metrics(full.sender, &full.stream, &moved));
    CHECK(moved.basis.angle > 0.01 && moved.basis.angle > moved.basis.mean_angle);
    CHECK(moved.basis.mean_angle > 0.001);
    /* Expected: the old weights, projected on the new basis. */
    const strait_tensor across = transposed(w), seen = projected(across, next),
                        expected_w = transposed(seen), expected_table = projected(table, next);
    CHECK_OK(strait_codec_basis_carry_over(full.sender, &full.stream, STRAIT_ROLE_RESIDUAL_OUT,
                                           STRAIT_BASIS_WEIGHT, w));
    CHECK_OK(strait_codec_basis_carry_over(full.sender, &full.stream, STRAIT_ROLE_EMBEDDING,
                                           STRAIT_BASIS_MOMENT, table));
    CHECK(distance(expected_w, w) < 1e-6);
    CHECK(distance(expected_table, table) < 1e-6);
    CHECK_OK(strait_codec_basis_carry_over(factored.sender, &factored.stream,
                                           STRAIT_ROLE_RESIDUAL_OUT, STRAIT_BASIS_WEIGHT, z));
    CHECK_OK(strait_codec_basis_carry_over(factored.sender, &factored.stream, STRAIT_ROLE_EMBEDDING,
                                           STRAIT_BASIS_WEIGHT, e));
    const strait_tensor next_back = transposed(next), from_z = product(next, z),
                        from_e = product(e, next_back);
    CHECK(distance(expected_w, from_z) < 1e-6);
    CHECK(distance(expected_table, from_e) < 1e-6);
    const strait_tensor all[] = {z,      e,      u,         next,          g,    d,
                                 back,   w,      table,     across,        seen, expected_w,
                                 from_z, from_e, next_back, expected_table};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i].data);
    pair_close(&full);
    pair_close(&factored);
}

/* The next basis: the old one with its first two columns turned by an angle. */
static void turn(const float *u, float *next, double angle) {
    for (int i = 0; i < D; i++) {
        const double a = (double)u[i * K], b = (double)u[i * K + 1];
        memcpy(next + (size_t)i * K, u + (size_t)i * K, K * sizeof *u);
        next[i * K] = (float)(cos(angle) * a + sin(angle) * b);
        next[i * K + 1] = (float)(cos(angle) * b - sin(angle) * a);
    }
}

/* A second moment per coordinate follows the coordinates; one that all coordinates of an input
 * share, and those of full weights, keep their values. None is reset. */
static void keeps_second_moments(void **state) {
    (void)state;
    struct pair full, factored;
    pair_open(&full, spec_of("full"));
    pair_open(&factored, spec_of("factored"));
    const strait_tensor own = pair_tensor(K, INPUTS), shared = pair_tensor(1, INPUTS),
                        rows = pair_tensor(VOCAB, 1), wide = pair_tensor(D, INPUTS);
    for (int i = 0; i < INPUTS; i++)
        f32(own)[i] = 9; // of the first coordinate; the others have 0
    f32(shared)[3] = 4, f32(rows)[5] = 4, f32(wide)[7] = 4;
    float next[D * K];
    const double angle = atan2(1, 2); // cos^2 = 0.8, sin^2 = 0.2
    turn(f32(basis_of(full.sender)), next, angle);
    CHECK_OK(strait_codec_basis_adopt(full.sender, &full.stream, next, 1));
    CHECK_OK(strait_codec_basis_adopt(factored.sender, &factored.stream, next, 1));
    const strait_role out = STRAIT_ROLE_RESIDUAL_OUT, embedding = STRAIT_ROLE_EMBEDDING;
    const strait_codec_basis_kind square = STRAIT_BASIS_SQUARE;
    CHECK_OK(strait_codec_basis_carry_over(factored.sender, &factored.stream, out, square, own));
    CHECK_OK(strait_codec_basis_carry_over(factored.sender, &factored.stream, out, square, shared));
    CHECK_OK(
        strait_codec_basis_carry_over(factored.sender, &factored.stream, embedding, square, rows));
    CHECK_OK(strait_codec_basis_carry_over(full.sender, &full.stream, out, square, wide));
    CHECK(fabs((double)f32(own)[0] - 9 * 0.8) < 1e-5);
    strait_codec_metrics seen; // a turn inside the span leaves the span where it was
    CHECK_OK(strait_codec_read_metrics(full.sender, &full.stream, &seen));
    CHECK(seen.basis.angle < 1e-6 && seen.basis.mean_angle < 1e-6 && seen.basis.error < 1e-6);
    CHECK(fabs((double)f32(own)[INPUTS] - 9 * 0.2) < 1e-5);
    CHECK(fabs((double)f32(own)[2 * INPUTS]) < 1e-5);
    CHECK(f32(shared)[3] == 4 && f32(rows)[5] == 4 && f32(wide)[7] == 4);
    const strait_tensor all[] = {own, shared, rows, wide};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i].data);
    pair_close(&full);
    pair_close(&factored);
}

/* A step below the rounding of f32 proposes the very same basis, and adopting it changes no bit of
 * any weight or moment, although a projection would round. */
static void an_update_that_moves_nothing_changes_nothing(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct pair p;
        strait_codec_spec spec = spec_of(i == 0 ? "full" : "factored");
        spec.grassmann_rate = 1e-9;
        pair_open(&p, spec);
        const int64_t rows = i == 0 ? D : K;
        const strait_tensor g = pair_normals(N, D, 3), d = pair_tensor(N, D),
                            w = pair_normals(rows, INPUTS, 5),
                            before = pair_normals(rows, INPUTS, 5);
        float next[D * K];
        pair_backward(&p, d, g);
        CHECK_OK(strait_codec_basis_propose(p.receiver, &p.stream, next));
        CHECK(memcmp(next, basis_of(p.sender).data, sizeof next) == 0);
        CHECK_OK(strait_codec_basis_adopt(p.sender, &p.stream, next, 1));
        for (int kind = STRAIT_BASIS_WEIGHT; kind <= STRAIT_BASIS_SQUARE; kind++)
            CHECK_OK(strait_codec_basis_carry_over(p.sender, &p.stream, STRAIT_ROLE_RESIDUAL_OUT,
                                                   (strait_codec_basis_kind)kind, w));
        CHECK(memcmp(w.data, before.data, strait_tensor_bytes(w)) == 0);
        const strait_tensor all[] = {g, d, w, before};
        for (size_t j = 0; j < sizeof all / sizeof *all; j++)
            free(all[j].data);
        pair_close(&p);
    }
}

static void rejects_other_versions(void **state) {
    (void)state;
    struct pair p;
    pair_open(&p, spec_of("full"));
    const strait_tensor u = basis_of(p.sender), bad = pair_normals(D, K, 1);
    float same[D * K];
    memcpy(same, u.data, sizeof same);
    assert_int_equal(strait_codec_version(p.sender), 0);
    CHECK_OK(strait_codec_check_version(p.sender, 0));
    CHECK_FAILS(strait_codec_basis_adopt(p.sender, &p.stream, same, 0), STRAIT_EPROTO,
                "basis version 0 offered, but this stage has version 0");
    CHECK_FAILS(strait_codec_basis_adopt(p.sender, &p.stream, f32(bad), 1), STRAIT_EDATA,
                "not orthonormal");
    CHECK_OK(strait_codec_basis_adopt(p.sender, &p.stream, same, 1));
    assert_int_equal(strait_codec_version(p.sender), 1);
    CHECK_FAILS(strait_codec_check_version(p.sender, 0), STRAIT_EPROTO,
                "a frame of basis version 0, this stage has version 1");
    CHECK_OK(strait_codec_check_version(p.sender, 1));
    CHECK_OK(strait_codec_check_version(p.sender, 65537)); // a frame carries two bytes of it
    CHECK_OK(strait_codec_basis_adopt(p.sender, &p.stream, same, 3)); // versions may skip numbers
    assert_int_equal(strait_codec_version(p.sender), 3);
    free(bad.data);
    pair_close(&p);
}

/* It comes from another machine: each of these would damage all weights. */
static void rejects_a_basis_that_is_not_orthonormal(void **state) {
    (void)state;
    struct pair p;
    pair_open(&p, spec_of("full"));
    float before[D * K];
    memcpy(before, basis_of(p.sender).data, sizeof before);
    for (int column = 0; column < K; column++)
        for (int k = 0; k < 4; k++) {
            float next[D * K];
            memcpy(next, before, sizeof next);
            if (k == 0) next[column] = NAN;
            if (k == 1) next[column] = INFINITY;
            for (int i = 0; i < D && k == 2; i++)
                next[i * K + column] *= 1.001f; // too long
            for (int i = 0; i < D && k == 3; i++)
                next[i * K + column] += 1e-3f * before[i * K + (column + 1) % K]; // at an angle
            CHECK_FAILS(strait_codec_basis_adopt(p.sender, &p.stream, next, 1), STRAIT_EDATA,
                        "not orthonormal");
            CHECK(memcmp(before, basis_of(p.sender).data, sizeof before) == 0);
        }
    assert_int_equal(strait_codec_version(p.sender), 0);
    pair_close(&p);
}

/* Stages share T_fixed between their boundaries, which must have the same codec for that. */
static void rejects_another_codec_at_the_previous_boundary(void **state) {
    (void)state;
    const strait_codec_spec topk = {.name = "topk", .rows = N, .cols = D, .keep = K};
    strait_codec_spec specs[] = {topk, spec_of("full"), spec_of("full")}, second = spec_of("full");
    struct pair prev, next;
    specs[1].keep = K - 1;
    second.boundary = 1;
    second.n_boundaries = 2;
    pair_open(&next, second);
    const strait_tensor x = pair_normals(N, D, 1);
    const strait_crossing at = pair_at(&next);
    CHECK_FAILS(strait_codec_act_pack(next.sender, &at, next.wire[0], x), STRAIT_EINVAL,
                "strait_codec_join must come before");
    for (int i = 0; i < 3; i++) {
        specs[i].n_boundaries = 2;
        pair_open(&prev, specs[i]);
        if (i < 2)
            CHECK_FAILS(strait_codec_join(prev.receiver, next.sender), STRAIT_ECONFIG,
                        "the same codec and keep at the previous boundary");
        else
            CHECK_OK(strait_codec_join(prev.receiver, next.sender));
        pair_close(&prev);
    }
    free(x.data);
    pair_close(&next);
}

/* Gradients at other boundaries lie in the span already: they would confirm the old basis. */
static void only_the_last_boundary_proposes(void **state) {
    (void)state;
    strait_codec_spec spec = spec_of("full");
    struct pair p;
    float next[D * K];
    spec.n_boundaries = 2;
    pair_open(&p, spec);
    CHECK_FAILS(strait_codec_basis_propose(p.receiver, &p.stream, next), STRAIT_EINVAL,
                "only the receiver of the last boundary");
    pair_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_move_the_basis_to_the_gradients),
        cmocka_unit_test(ignores_non_finite_gradients),
        cmocka_unit_test(carries_weights_over_by_projection),
        cmocka_unit_test(keeps_second_moments),
        cmocka_unit_test(an_update_that_moves_nothing_changes_nothing),
        cmocka_unit_test(rejects_other_versions),
        cmocka_unit_test(rejects_a_basis_that_is_not_orthonormal),
        cmocka_unit_test(rejects_another_codec_at_the_previous_boundary),
        cmocka_unit_test(only_the_last_boundary_proposes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
