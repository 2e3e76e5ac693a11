/* The subspace turned on demand: where to, what is carried over, and what is refused. */
#include "subspace_rig.h"

/* Share of the size of g that lies in the basis. */
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

static void basis_turns_to_the_gradients(void **state) {
    (void)state;
    struct pair p;
    pair_open(&p, spec_of("full"));
    const strait_tensor thin = pair_normals(N, K, 2), wide = pair_normals(K, D, 3),
                        noise = pair_normals(N, D, 4), g = product(thin, wide),
                        d = pair_tensor(N, D), next = pair_tensor(D, K);
    for (int i = 0; i < N * D; i++)
        f32(g)[i] += 0.05f * f32(noise)[i];
    double before = captured(g, basis_of(p.tail));
    CHECK(before < 0.5);
    for (uint32_t turn = 1; turn <= 30; turn++) {
        pair_backward(&p, d, g);
        CHECK_OK(strait_codec_basis_propose(p.tail, &p.stream, f32(next)));
        CHECK_OK(strait_codec_basis_adopt(p.tail, &p.stream, f32(next), turn));
        CHECK_OK(strait_codec_basis_adopt(p.head, &p.stream, f32(next), turn));
        const double after = captured(g, basis_of(p.tail));
        CHECK(after >= before - 1e-6);
        before = after;
    }
    CHECK(before > 0.99);
    /* No gradients, no turn. */
    CHECK_OK(strait_codec_basis_propose(p.tail, &p.stream, f32(next)));
    CHECK(apart(basis_of(p.tail), next) < 1e-6);
    CHECK_FAILS(strait_codec_basis_propose(p.head, &p.stream, f32(next)), STRAIT_EINVAL,
                "receiver of the last boundary");
    const strait_tensor all[] = {thin, wide, noise, g, d, next};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i].data);
    pair_close(&p);
}

/* A gradient that is no number turns nothing, and is forgotten once it was counted. */
static void what_is_no_number_is_left_out(void **state) {
    (void)state;
    struct pair p;
    pair_open(&p, spec_of("full"));
    const strait_tensor g = pair_normals(N, D, 4), bad = pair_normals(N, D, 4);
    const strait_tensor d = pair_tensor(N, D), next = pair_tensor(D, K);
    f32(bad)[0] = NAN;
    pair_backward(&p, d, bad);
    CHECK_OK(strait_codec_basis_propose(p.tail, &p.stream, f32(next)));
    CHECK(apart(basis_of(p.tail), next) < 1e-6);
    pair_backward(&p, d, bad);
    strait_codec_metrics seen;
    CHECK_OK(strait_codec_read_metrics(p.tail, &p.stream, &seen));
    CHECK(seen.non_finite > 0);
    pair_backward(&p, d, g);
    CHECK_OK(strait_codec_basis_propose(p.tail, &p.stream, f32(next)));
    CHECK(apart(basis_of(p.tail), next) > 1e-3);
    const strait_tensor all[] = {g, bad, d, next};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i].data);
    pair_close(&p);
}

/* A turned basis and the tensors carried over, in both forms. */
static void turning_projects_what_is_represented(void **state) {
    (void)state;
    struct pair full, factored;
    pair_open(&full, spec_of("full"));
    pair_open(&factored, spec_of("factored"));
    const strait_tensor z = pair_normals(K, INPUTS, 1), e = pair_normals(VOCAB, K, 2);
    const strait_tensor u = pair_tensor(D, K), next = pair_tensor(D, K), g = pair_normals(N, D, 3),
                        d = pair_tensor(N, D);
    memcpy(u.data, basis_of(full.head).data, strait_tensor_bytes(u));
    const strait_tensor back = transposed(u), w = product(u, z), table = product(e, back);
    pair_backward(&full, d, g);
    CHECK_OK(strait_codec_basis_propose(full.tail, &full.stream, f32(next)));
    CHECK(apart(u, next) > 0.01);
    CHECK_OK(strait_codec_basis_adopt(full.head, &full.stream, f32(next), 1));
    CHECK_OK(strait_codec_basis_adopt(factored.head, &factored.stream, f32(next), 1));
    /* What must come out: everything projected on the new basis. */
    const strait_tensor across = transposed(w), seen = projected(across, next),
                        expected_w = transposed(seen), expected_table = projected(table, next);
    CHECK_OK(strait_codec_basis_carry_over(full.head, &full.stream, STRAIT_ROLE_RESIDUAL_OUT,
                                           STRAIT_BASIS_WEIGHT, w));
    CHECK_OK(strait_codec_basis_carry_over(full.head, &full.stream, STRAIT_ROLE_EMBEDDING,
                                           STRAIT_BASIS_MOMENT, table));
    CHECK(apart(expected_w, w) < 1e-6);
    CHECK(apart(expected_table, table) < 1e-6);
    CHECK_OK(strait_codec_basis_carry_over(factored.head, &factored.stream,
                                           STRAIT_ROLE_RESIDUAL_OUT, STRAIT_BASIS_WEIGHT, z));
    CHECK_OK(strait_codec_basis_carry_over(factored.head, &factored.stream, STRAIT_ROLE_EMBEDDING,
                                           STRAIT_BASIS_WEIGHT, e));
    const strait_tensor next_back = transposed(next), from_z = product(next, z),
                        from_e = product(e, next_back);
    CHECK(apart(expected_w, from_z) < 1e-6);
    CHECK(apart(expected_table, from_e) < 1e-6);
    const strait_tensor all[] = {z,      e,      u,         next,          g,    d,
                                 back,   w,      table,     across,        seen, expected_w,
                                 from_z, from_e, next_back, expected_table};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i].data);
    pair_close(&full);
    pair_close(&factored);
}

static void other_versions_are_refused(void **state) {
    (void)state;
    struct pair p;
    pair_open(&p, spec_of("full"));
    const strait_tensor u = basis_of(p.head), bad = pair_normals(D, K, 1);
    float same[D * K];
    memcpy(same, u.data, sizeof same);
    assert_int_equal(strait_codec_version(p.head), 0);
    CHECK_OK(strait_codec_check_version(p.head, 0));
    CHECK_FAILS(strait_codec_basis_adopt(p.head, &p.stream, same, 0), STRAIT_EPROTO,
                "basis version 0 offered, but this stage has version 0");
    CHECK_FAILS(strait_codec_basis_adopt(p.head, &p.stream, f32(bad), 1), STRAIT_EDATA,
                "not orthonormal");
    CHECK_OK(strait_codec_basis_adopt(p.head, &p.stream, same, 1));
    assert_int_equal(strait_codec_version(p.head), 1);
    CHECK_FAILS(strait_codec_check_version(p.head, 0), STRAIT_EPROTO,
                "a frame of basis version 0, this stage has version 1");
    CHECK_OK(strait_codec_check_version(p.head, 1));
    CHECK_OK(strait_codec_check_version(p.head, 65537));            // a frame has two bytes for it
    CHECK_OK(strait_codec_basis_adopt(p.head, &p.stream, same, 3)); // a turn was skipped
    assert_int_equal(strait_codec_version(p.head), 3);
    free(bad.data);
    pair_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(basis_turns_to_the_gradients),
        cmocka_unit_test(what_is_no_number_is_left_out),
        cmocka_unit_test(turning_projects_what_is_represented),
        cmocka_unit_test(other_versions_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
