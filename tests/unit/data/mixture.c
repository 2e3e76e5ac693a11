#include "data/mixture.h"

#include "base/alloc.h"
#include "shards.h"

enum {
    VOCAB = 60000,
    CONTEXT = 4,
    N_A = 400, // ids 0 to 399 of a.bin and a2.bin, 1000 on of b.bin
    START_B = 1000
};
static char names[512];

static int put_sources(void **state) {
    if (make_folder(state) != 0) return 1;
    put_shard(in_folder("a1.bin"), N_A / 2, 0, (strait_shard_spec){VOCAB, NULL, 0});
    put_shard(in_folder("a2.bin"), N_A / 2, N_A / 2, (strait_shard_spec){VOCAB, NULL, 0});
    put_shard(in_folder("b.bin"), 900, START_B, (strait_shard_spec){VOCAB, NULL, 0});
    (void)snprintf(names, sizeof names, "%s:0.3,%s:0.7", in_folder("a?.bin"), in_folder("b.bin"));
    return 0;
}

static struct strait_mixture *open_mixture(const char *name, uint64_t seed) {
    struct strait_mixture *m = NULL;
    CHECK_OK(strait_mixture_open(name, STRAIT_CORPUS_SHARD, &m));
    CHECK_OK(strait_mixture_start(m, CONTEXT, seed));
    return m;
}

/* Every round has the share of each source, and no source repeats a window within its epoch. */
static void test_draws_each_source_by_its_weight(void **state) {
    (void)state;
    struct strait_mixture *m = open_mixture(names, 7);
    assert_int_equal(m->n_sources, 2);
    assert_int_equal(m->n_tokens, N_A + 900);
    assert_int_equal(m->sources[0].share, 300);
    static unsigned char seen[2][3 * STRAIT_MIXTURE_ROUND];
    memset(seen, 0, sizeof seen);
    for (int64_t round = 0; round < 3; round++) {
        int n[2] = {0, 0}, longest = 0, run = 0, last = -1;
        for (int64_t i = 0; i < STRAIT_MIXTURE_ROUND; i++) {
            const strait_mixture_place place = strait_mixture_find(m, round * STRAIT_MIXTURE_ROUND +
                                                                          i);
            n[place.source]++;
            CHECK(seen[place.source][place.sequence]++ == 0);
            run = place.source == last ? run + 1 : 1;
            last = place.source;
            if (run > longest) longest = run;
        }
        assert_int_equal(n[0], 300);
        assert_int_equal(n[1], 700);
        CHECK(longest < 60); // mixed, not one source after the other
    }
    for (int s = 0; s < 2; s++)
        for (int64_t i = 0; i < 3 * m->sources[s].share; i++)
            assert_int_equal(seen[s][i], 1);
    strait_mixture_close(&m);
}

/* However the rows of a step are divided among microbatches, they are the same. */
static void test_rows_depend_on_their_number_only(void **state) {
    (void)state;
    enum {
        ROWS = 40
    };
    struct strait_mixture *m = open_mixture(names, 7), *again = open_mixture(names, 7);
    struct strait_mixture *other = open_mixture(names, 8);
    int32_t whole[2][ROWS * CONTEXT], parts[2][ROWS * CONTEXT], third[2][ROWS * CONTEXT];
    CHECK_OK(strait_mixture_fill(m, 990, ROWS, whole[0], whole[1]));
    for (int row = ROWS - 1; row >= 0; row--)
        CHECK_OK(strait_mixture_fill(again, 990 + row, 1, parts[0] + row * CONTEXT,
                                     parts[1] + row * CONTEXT));
    assert_memory_equal(whole, parts, sizeof whole);
    CHECK_OK(strait_mixture_fill(other, 990, ROWS, third[0], third[1]));
    assert_memory_not_equal(whole, third, sizeof whole);
    for (int row = 0; row < ROWS; row++) {
        const int32_t first = whole[0][row * CONTEXT];
        assert_int_equal(strait_mixture_find(m, 990 + row).source, first >= START_B);
        for (int t = 0; t < CONTEXT; t++)
            assert_int_equal(whole[1][row * CONTEXT + t], first + t + 1);
    }
    /* Computed from docs/formats.md by another program: resumed runs depend on this order. */
    const int32_t frozen[] = {0, 1, 1, 1, 1, 1, 0, 1, 0, 0, 0, 1};
    for (int i = 0; i < 12; i++)
        assert_int_equal(strait_mixture_find(m, i).source, frozen[i]);
    assert_int_equal(strait_mixture_find(m, 1000).sequence, 700 + 612 - 300);
    strait_mixture_close(&m);
    strait_mixture_close(&again);
    strait_mixture_close(&other);
}

/* One source has the order that it had before there were mixtures. */
static void test_one_source_is_a_plain_sampler(void **state) {
    (void)state;
    struct strait_mixture *m = open_mixture(in_folder("b.bin"), 3);
    int32_t rows[2][9 * CONTEXT], plain[2][9 * CONTEXT];
    strait_sampler sampler;
    CHECK_OK(strait_sampler_init(m->sources[0].corpus, CONTEXT, 3, &sampler));
    CHECK_OK(strait_mixture_fill(m, 5, 9, rows[0], rows[1]));
    CHECK_OK(strait_sampler_fill(&sampler, 5, 9, plain[0], plain[1]));
    assert_memory_equal(rows, plain, sizeof rows);
    strait_mixture_close(&m);
}

static void check_refused(const char *name, strait_err err, const char *text) {
    struct strait_mixture *m = NULL;
    CHECK_FAILS(strait_mixture_open(name, STRAIT_CORPUS_SHARD, &m), err, text);
    CHECK(m == NULL);
}

static void test_refuses_what_cannot_be_mixed(void **state) {
    (void)state;
    char list[1024];
    (void)snprintf(list, sizeof list, "%s:1,%s", in_folder("a1.bin"), in_folder("b.bin"));
    check_refused(list, STRAIT_ECONFIG, "1 of 2 sources have a weight");
    (void)snprintf(list, sizeof list, "%s:10000,%s:1", in_folder("a1.bin"), in_folder("b.bin"));
    check_refused(list, STRAIT_ECONFIG, "less than a thousandth");
    check_refused(in_folder("none.bin:1"), STRAIT_EIO, "none.bin");
    put_shard(in_folder("c.bin"), 90, 0, (strait_shard_spec){500, NULL, 0});
    (void)snprintf(list, sizeof list, "%s:1,%s:1", in_folder("b.bin"), in_folder("c.bin"));
    check_refused(list, STRAIT_EDATA, "vocabulary of 500");
    for (int n = 1; n < 14; n++) {
        struct strait_mixture *m = NULL;
        strait_alloc_fail_at(n);
        const strait_err err = strait_mixture_open(names, STRAIT_CORPUS_SHARD, &m);
        strait_alloc_fail_at(0);
        CHECK(err == STRAIT_ENOMEM || err == STRAIT_OK);
        CHECK(n > 1 || err == STRAIT_ENOMEM);
        strait_mixture_close(&m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_draws_each_source_by_its_weight),
        cmocka_unit_test(test_rows_depend_on_their_number_only),
        cmocka_unit_test(test_one_source_is_a_plain_sampler),
        cmocka_unit_test(test_refuses_what_cannot_be_mixed),
    };
    return cmocka_run_group_tests(tests, put_sources, remove_folder);
}
