#include "data/sampler.h"

#include "base/alloc.h"
#include "shards.h"

enum {
    VOCAB = 60000,
    CONTEXT = 7
};
static struct strait_corpus *corpus; // 1000, 7, 8, 13, 14 and 333 tokens; ids count up

static int open_corpus(void **state) {
    if (make_folder(state) != 0) return 1;
    const int64_t sizes[] = {1000, 7, 8, 13, 14, 333};
    char list[2048] = "";
    int64_t start = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "s%zu.bin", i);
        put_shard(in_folder(name), sizes[i], start, (strait_shard_spec){VOCAB, NULL, 0});
        if (i > 0) add_text(list, sizeof list, ",");
        add_text(list, sizeof list, in_folder(name));
        start += sizes[i];
    }
    return strait_corpus_open(list, &corpus) != STRAIT_OK;
}

static int close_corpus(void **state) {
    strait_corpus_close(&corpus);
    return remove_folder(state);
}

static void test_visits_each_window_once_per_epoch(void **state) {
    (void)state;
    strait_sampler sampler;
    CHECK_OK(strait_sampler_init(corpus, CONTEXT, 42, &sampler));
    assert_int_equal(sampler.n_windows, 141 + 0 + 1 + 1 + 1 + 46);
    int64_t first_of_epoch[4];
    for (int64_t epoch = 0; epoch < 4; epoch++) {
        unsigned char read[1375] = {0}; // how often each token is an input in this epoch
        for (int64_t i = 0; i < sampler.n_windows; i++) {
            int32_t inputs[CONTEXT], targets[CONTEXT];
            CHECK_OK(
                strait_sampler_fill(&sampler, epoch * sampler.n_windows + i, 1, inputs, targets));
            if (i == 0) first_of_epoch[epoch] = inputs[0];
            for (int t = 0; t < CONTEXT; t++) {
                assert_int_equal(targets[t], inputs[0] + t + 1);
                assert_int_equal(inputs[t], inputs[0] + t);
                read[inputs[t]]++;
            }
            const strait_sampler_place place = strait_sampler_find(&sampler,
                                                                   epoch * sampler.n_windows + i);
            CHECK(place.first + CONTEXT < corpus->shards[place.shard].n_tokens);
        }
        int n_read = 0;
        for (int i = 0; i < 1375; i++) {
            CHECK(read[i] <= 1);
            n_read += read[i];
        }
        assert_int_equal(n_read, sampler.n_windows * CONTEXT);
    }
    CHECK(first_of_epoch[0] != first_of_epoch[1] || first_of_epoch[1] != first_of_epoch[2]);
}

static void test_depends_on_seed_and_sequence_only(void **state) {
    (void)state;
    strait_sampler sampler, other;
    CHECK_OK(strait_sampler_init(corpus, CONTEXT, 42, &sampler));
    CHECK_OK(strait_sampler_init(corpus, CONTEXT, 43, &other));
    int32_t all[64 * CONTEXT], all_targets[64 * CONTEXT], row[CONTEXT], row_targets[CONTEXT];
    const int64_t before = strait_alloc_count();
    CHECK_OK(strait_sampler_fill(&sampler, 1000, 64, all, all_targets));
    int n_same = 0;
    for (int i = 63; i >= 0; i--) {
        CHECK_OK(strait_sampler_fill(&sampler, 1000 + i, 1, row, row_targets));
        assert_memory_equal(row, all + (size_t)i * CONTEXT, sizeof row);
        assert_memory_equal(row_targets, all_targets + (size_t)i * CONTEXT, sizeof row);
        CHECK_OK(strait_sampler_fill(&other, 1000 + i, 1, row, row_targets));
        n_same += memcmp(row, all + (size_t)i * CONTEXT, sizeof row) == 0;
    }
    CHECK(n_same < 8);
    assert_int_equal(strait_alloc_count(), before);
}

/* These positions must never change, or a resumed run would train on other text. */
static void test_order_of_samples_is_stable(void **state) {
    (void)state;
    strait_sampler sampler;
    CHECK_OK(strait_sampler_init(corpus, CONTEXT, 1, &sampler));
    const int64_t expected[][2] = {{0, 311}, {0, 584}, {5, 249}, {0, 150},
                                   {0, 372}, {0, 414}, {0, 729}, {0, 890}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const strait_sampler_place place = strait_sampler_find(&sampler, (int64_t)i * 50);
        assert_int_equal(place.shard, expected[i][0]);
        assert_int_equal(place.first, expected[i][1]);
    }
}

static void test_window_offset_changes_between_epochs(void **state) {
    (void)state;
    strait_sampler sampler;
    CHECK_OK(strait_sampler_init(corpus, CONTEXT, 5, &sampler));
    unsigned seen = 0;
    for (int64_t epoch = 0; epoch < 60; epoch++) {
        int64_t phase = -1;
        for (int64_t i = 0; i < sampler.n_windows && phase < 0; i++) {
            const strait_sampler_place place = strait_sampler_find(&sampler,
                                                                   epoch * sampler.n_windows + i);
            if (place.shard == 0) phase = place.first % CONTEXT;
        }
        CHECK(phase >= 0);
        seen |= 1u << ((unsigned)phase & 31u);
    }
    assert_int_equal(seen, (1u << CONTEXT) - 1); // all of 0 to 6
}

static void test_in_order_covers_shards_from_the_start(void **state) {
    (void)state;
    strait_sampler sampler;
    CHECK_OK(strait_sampler_in_order(corpus, CONTEXT, &sampler));
    assert_int_equal(sampler.n_windows, 142 + 0 + 1 + 1 + 1 + 47);
    int32_t inputs[2 * CONTEXT], targets[2 * CONTEXT];
    CHECK_OK(strait_sampler_fill(&sampler, 0, 2, inputs, targets));
    for (int t = 0; t < 2 * CONTEXT; t++) {
        assert_int_equal(inputs[t], t);
        assert_int_equal(targets[t], t + 1);
    }
    CHECK_OK(strait_sampler_fill(&sampler, 142, 1, inputs, targets));
    assert_int_equal(inputs[0], 1007); // the shard of seven tokens holds no window
    CHECK_OK(strait_sampler_fill(&sampler, sampler.n_windows, 1, inputs, targets));
    assert_int_equal(inputs[0], 0);
}

static void test_permutes_every_number_of_windows(void **state) {
    (void)state;
    for (int64_t n = 2; n < 200; n += n < 20 ? 1 : 17) {
        const char *path = in_folder("p.bin");
        put_shard(path, n, 0, (strait_shard_spec){VOCAB, NULL, 0});
        struct strait_corpus *one = NULL;
        CHECK_OK(strait_corpus_open(path, &one));
        strait_sampler sampler;
        CHECK_OK(strait_sampler_init(one, 1, (uint64_t)n, &sampler));
        assert_int_equal(sampler.n_windows, n - 1);
        unsigned char seen[200] = {0};
        for (int64_t i = 0; i < sampler.n_windows; i++)
            seen[strait_sampler_find(&sampler, i).first]++;
        for (int64_t i = 0; i < n - 1; i++)
            assert_int_equal(seen[i], 1);
        strait_corpus_close(&one);
    }
}

static void test_rejects_short_shards_and_bad_ids(void **state) {
    (void)state;
    strait_sampler sampler;
    CHECK_FAILS(strait_sampler_init(corpus, 1000, 0, &sampler), STRAIT_EDATA,
                "no shard holds 1001 tokens");
    CHECK_FAILS(strait_sampler_init(corpus, 0, 0, &sampler), STRAIT_EINVAL, "context of 0");
    CHECK_OK(strait_sampler_in_order(corpus, CONTEXT, &sampler));
    struct strait_corpus small = *corpus;
    small.vocab = 14;
    sampler.corpus = &small;
    int32_t inputs[CONTEXT], targets[CONTEXT];
    CHECK_OK(strait_sampler_fill(&sampler, 0, 1, inputs, targets));
    CHECK_FAILS(strait_sampler_fill(&sampler, 1, 1, inputs, targets), STRAIT_EDATA,
                "s0.bin: token 14 has id 14, outside the vocabulary of 14");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_visits_each_window_once_per_epoch),
        cmocka_unit_test(test_depends_on_seed_and_sequence_only),
        cmocka_unit_test(test_order_of_samples_is_stable),
        cmocka_unit_test(test_window_offset_changes_between_epochs),
        cmocka_unit_test(test_in_order_covers_shards_from_the_start),
        cmocka_unit_test(test_permutes_every_number_of_windows),
        cmocka_unit_test(test_rejects_short_shards_and_bad_ids),
    };
    return cmocka_run_group_tests(tests, open_corpus, close_corpus);
}
