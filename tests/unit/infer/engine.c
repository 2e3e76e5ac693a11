/* Sequences that are generated together: each gets the tokens that it gets alone. */
#include "infer/engine.h"

#include "base/alloc.h"
#include "tiny_trained.h"

enum {
    REQUESTS = 7,
    DRAWN = 40 // more than the context of the model
};

static strait_run run;
static scratch folder;
static struct strait_trained_model *trained;

static int set_up(void **state) {
    (void)state;
    tiny_trained(&folder, &run);
    CHECK_OK(strait_trained_model_open(folder.path, NULL,
                                       (strait_backend_spec){.name = "cpu", .n_threads = 1},
                                       STRAIT_TRAINED_MODEL_LATER, &trained));
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    strait_trained_model_close(&trained);
    scratch_close(&folder);
    return 0;
}

typedef struct consumer {
    int32_t tokens[DRAWN];
    int n, limit;
} consumer;

static int take(void *user, int32_t token) {
    consumer *c = user;
    assert_true(c->n < DRAWN);
    c->tokens[c->n++] = token;
    return c->n < c->limit;
}

static strait_err add(struct strait_engine *e, int i, consumer *c, int *slot) {
    int32_t ids[80];
    for (int j = 0; j < 80; j++)
        ids[j] = (i * 7 + j * 5) % TINY_VOCAB;
    const strait_engine_request request = {
        .ids = ids,
        .n_ids = i == 3 ? 80 : 1 + 3 * i, // one prompt is longer than the context
        .n_tokens = DRAWN,
        .sampling = {.temperature = i % 2 == 0 ? 1.0 : 0.0,
                     .top_p = 0.9,
                     .penalty = i == 4 ? 1.5 : 1.0,
                     .seed = (uint64_t)i},
        .on_token = take,
        .user = c};
    c->n = 0;
    c->limit = i == 5 ? 9 : DRAWN + 1; // one consumer stops early
    return strait_engine_add(e, &request, slot);
}

/* Generates all requests, as many at a time as there are slots. */
static void generate_all(consumer *all, int n_slots) {
    struct strait_engine *e = NULL;
    int next = 0;
    CHECK_OK(strait_engine_open(trained, (strait_engine_spec){.n_sequences = n_slots}, &e));
    while (next < REQUESTS || strait_engine_count(e) > 0) {
        int slot = 0;
        while (next < REQUESTS && slot >= 0) {
            CHECK_OK(add(e, next, &all[next], &slot));
            next += slot >= 0;
        }
        CHECK_OK(strait_engine_step(e));
    }
    strait_engine_close(&e);
}

static void tokens_do_not_depend_on_the_batch(void **state) {
    (void)state;
    static consumer alone[REQUESTS], some[REQUESTS], all[REQUESTS];
    generate_all(alone, 1);
    for (int i = 0; i < REQUESTS; i++)
        assert_int_equal(alone[i].n, i == 5 ? 9 : DRAWN);
    generate_all(some, 3);
    assert_memory_equal(some, alone, sizeof alone);
    generate_all(all, 40);
    assert_memory_equal(all, alone, sizeof alone);
}

/* More sequences than a step has rows: without rows of its own, a prompt would be read only once
 * one of them ends or has filled its context. */
static void prompts_are_read_while_every_row_draws(void **state) {
    (void)state;
    enum {
        BUSY = 36
    };
    static consumer busy[BUSY];
    struct strait_engine *e = NULL;
    consumer late;
    int slot = -1, n_steps = 0;
    CHECK_OK(strait_engine_open(trained, (strait_engine_spec){.n_sequences = BUSY + 1}, &e));
    for (int i = 0; i < BUSY; i++)
        CHECK_OK(add(e, 0, &busy[i], &slot));
    CHECK_OK(strait_engine_step(e));
    CHECK_OK(add(e, 2, &late, &slot)); // seven tokens
    for (; late.n == 0; n_steps++)
        CHECK_OK(strait_engine_step(e));
    assert_true(n_steps <= 8);
    strait_engine_close(&e);
}

static void removes_and_refuses_requests(void **state) {
    (void)state;
    struct strait_engine *e = NULL;
    consumer c;
    int slot = -1, other = -1;
    CHECK_OK(strait_engine_open(trained, (strait_engine_spec){.n_sequences = 1}, &e));
    CHECK_OK(strait_engine_step(e)); // without sequences
    CHECK_OK(add(e, 0, &c, &slot));
    CHECK_OK(add(e, 1, &c, &other));
    assert_int_equal(other, -1);
    CHECK_OK(strait_engine_step(e));
    strait_engine_remove(e, slot);
    assert_int_equal(strait_engine_count(e), 0);
    const int32_t outside = TINY_VOCAB;
    strait_engine_request request = {
        .ids = &outside, .n_ids = 1, .n_tokens = 1, .sampling = {.top_p = 1, .penalty = 1}};
    CHECK_FAILS(strait_engine_add(e, &request, &slot), STRAIT_EDATA, "vocabulary");
    static const struct {
        strait_sampling sampling;
        const char *message;
    } cases[] = {{{-1, 1, 0, 1, 0, 0}, "temperature"}, {{NAN, 1, 0, 1, 0, 0}, "temperature"},
                 {{1, 0, 0, 1, 0, 0}, "top-p"},        {{1, 1.5, 0, 1, 0, 0}, "top-p"},
                 {{1, 1, -0.1, 1, 0, 0}, "min-p"},     {{1, 1, 0, 0, 0, 0}, "penalty"},
                 {{1, 1, 0, NAN, 0, 0}, "penalty"},    {{1, 1, 0, 1, -1, 0}, "top-k"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_FAILS(strait_sampling_check(&cases[i].sampling), STRAIT_ECONFIG, cases[i].message);
    strait_engine_close(&e);
}

static void survives_failed_allocations(void **state) {
    (void)state;
    strait_err err = STRAIT_ENOMEM;
    for (int n = 1; err != STRAIT_OK; n++) {
        struct strait_engine *e = NULL;
        consumer c;
        int slot = -1;
        strait_alloc_fail_at(n);
        err = strait_engine_open(trained, (strait_engine_spec){.n_sequences = 2}, &e);
        if (err == STRAIT_OK) err = add(e, 0, &c, &slot);
        if (err == STRAIT_OK) err = strait_engine_step(e);
        strait_alloc_fail_at(0);
        strait_engine_close(&e);
        assert_true(err == STRAIT_OK || err == STRAIT_ENOMEM);
        assert_true(n < 1000);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_do_not_depend_on_the_batch),
        cmocka_unit_test(prompts_are_read_while_every_row_draws),
        cmocka_unit_test(removes_and_refuses_requests),
        cmocka_unit_test(survives_failed_allocations),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
