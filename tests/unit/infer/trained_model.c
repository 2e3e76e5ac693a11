/* A trained model that is opened from its folder. */
#include "infer/trained_model.h"

#include "base/alloc.h"
#include "tiny_trained.h"

enum {
    N_IDS = 100
};

static strait_run run;
static scratch folder;
static int32_t ids[N_IDS];
static const strait_backend_spec cpu = {.name = "cpu", .n_threads = 1};

static int set_up(void **state) {
    (void)state;
    tiny_trained(&folder, &run);
    for (int i = 0; i < N_IDS; i++)
        ids[i] = i * 5 % TINY_VOCAB;
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    scratch_close(&folder);
    return 0;
}

static strait_err fetch(void *user, int64_t first, int64_t n, int32_t *out) {
    memcpy(out, (const int32_t *)user + first, (size_t)n * sizeof *out);
    return STRAIT_OK;
}

static const strait_trained_model_progress silent = {NULL, NULL};
static int64_t seen_last;

static void seen(void *arg, int64_t n) {
    (void)arg;
    assert_true(n > seen_last);
    seen_last = n;
}

static strait_model_score score(const char *path, int64_t at_a_time, int64_t n) {
    struct strait_trained_model *trained = NULL;
    strait_model_score out;
    CHECK_OK(strait_trained_model_open(path, NULL, cpu, at_a_time, &trained));
    assert_int_equal(trained->step, 3);
    assert_null(trained->tokenizer);
    seen_last = 0;
    CHECK_OK(strait_trained_model_evaluate(trained, fetch, ids, n,
                                           (strait_trained_model_progress){seen, NULL}, &out));
    assert_int_equal(seen_last, out.n_tokens);
    strait_trained_model_close(&trained);
    return out;
}

static void score_is_independent_of_batch_size(void **state) {
    (void)state;
    const strait_model_score one = score(folder.path, 16, N_IDS);
    const strait_model_score four = score(folder.path, 64, N_IDS);
    const strait_model_score all = score(scratch_at(&folder, "checkpoints/00000003"), 4096, N_IDS);
    assert_int_equal(one.n_tokens, N_IDS - 1);
    assert_int_equal(four.n_tokens, N_IDS - 1);
    assert_int_equal(all.n_tokens, N_IDS - 1);
    CHECK_NEAR(four.loss_sum, one.loss_sum, 1e-4 * one.loss_sum);
    CHECK_NEAR(all.loss_sum, one.loss_sum, 1e-4 * one.loss_sum);
    CHECK_NEAR(one.loss_sum / (N_IDS - 1), log(TINY_VOCAB), 1.0);
    assert_int_equal(score(folder.path, 16, 2).n_tokens, 1);
    assert_int_equal(score(folder.path, 16, 17).n_tokens, 16);
}

static void rejects_ids_outside_the_vocabulary(void **state) {
    (void)state;
    struct strait_trained_model *trained = NULL;
    strait_model_score out;
    CHECK_OK(strait_trained_model_open(folder.path, NULL, cpu, 16, &trained));
    CHECK_FAILS(strait_trained_model_evaluate(trained, fetch, ids, 1, silent, &out), STRAIT_EDATA,
                "at least 2");
    static const int32_t bad[] = {-1, TINY_VOCAB};
    for (int i = 0; i < 2; i++) {
        const int32_t kept = ids[37];
        ids[37] = bad[i];
        CHECK_FAILS(strait_trained_model_evaluate(trained, fetch, ids, N_IDS, silent, &out),
                    STRAIT_EDATA, "at position 37");
        ids[37] = kept;
    }
    strait_trained_model_close(&trained);
    strait_trained_model_close(&trained);
}

static void rejects_folders_without_a_model(void **state) {
    (void)state;
    struct strait_trained_model *trained = NULL;
    CHECK_FAILS(strait_trained_model_open(scratch_at(&folder, "nowhere"), NULL, cpu, 16, &trained),
                STRAIT_EDATA, "nowhere");
    CHECK_FAILS(
        strait_trained_model_open(folder.path, scratch_at(&folder, "no.json"), cpu, 16, &trained),
        STRAIT_EIO, "no.json");
    const strait_backend_spec abacus = {.name = "abacus"};
    CHECK_FAILS(strait_trained_model_open(folder.path, NULL, abacus, 16, &trained), STRAIT_ECONFIG,
                "abacus");
    assert_null(trained);
}

static void open_survives_failed_allocations(void **state) {
    (void)state;
    strait_err err = STRAIT_ENOMEM;
    int n = 0;
    while (err == STRAIT_ENOMEM) {
        struct strait_trained_model *trained = NULL;
        strait_alloc_fail_at(++n);
        err = strait_trained_model_open(folder.path, NULL, cpu, 16, &trained);
        strait_alloc_fail_at(0);
        strait_trained_model_close(&trained);
    }
    CHECK(err == STRAIT_OK);
    assert_true(n > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(score_is_independent_of_batch_size),
        cmocka_unit_test(rejects_ids_outside_the_vocabulary),
        cmocka_unit_test(rejects_folders_without_a_model),
        cmocka_unit_test(open_survives_failed_allocations),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
