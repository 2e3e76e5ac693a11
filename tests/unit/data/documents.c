#include "base/alloc.h"
#include "data/mixture.h"
#include "shards.h"

enum {
    FIRST = STRAIT_TOKEN_FIRST,
    SKIP = STRAIT_TOKEN_UNTRAINED,
    CONTEXT = 4
};

/* Three documents: of three, one and seven tokens, the last one longer than the context. */
static const int32_t words[] = {
    10 | FIRST | SKIP, 11 | SKIP, 12, 20 | FIRST, 30 | FIRST | SKIP, 31, 32 | SKIP, 33, 34, 35, 36};

static void put_documents(const char *name) {
    struct strait_shard_writer *writer = NULL;
    CHECK_OK(strait_shard_writer_open(in_folder(name), (strait_shard_spec){50, NULL, 1}, &writer));
    CHECK_OK(strait_shard_writer_append(writer, words, sizeof words / sizeof *words));
    CHECK_OK(strait_shard_writer_finish(&writer));
}

static void test_a_document_has_a_row_of_its_own(void **state) {
    (void)state;
    put_documents("d.bin");
    struct strait_corpus *corpus = NULL;
    CHECK_OK(strait_corpus_open(in_folder("d.bin"), &corpus));
    assert_int_equal(corpus->n_documents, 3);
    assert_int_equal(corpus->n_tokens, 11);
    CHECK_OK(strait_corpus_verify(corpus));
    int32_t plain[11];
    CHECK_OK(strait_corpus_read(corpus, 0, 11, plain));
    assert_int_equal(plain[0], 10); // without tags
    strait_sampler sampler;
    CHECK_OK(strait_sampler_in_order(corpus, CONTEXT, &sampler));
    assert_int_equal(sampler.n_windows, 3);
    int32_t inputs[3 * CONTEXT], targets[3 * CONTEXT];
    CHECK_OK(strait_sampler_fill(&sampler, 0, 3, inputs, targets));
    const int32_t want_inputs[] = {10, 11, 0, 0, 0, 0, 0, 0, 30, 31, 32, 33};
    const int32_t want_targets[] = {-1, 12, -1, -1, -1, -1, -1, -1, 31, -1, 33, 34};
    assert_memory_equal(inputs, want_inputs, sizeof inputs);
    assert_memory_equal(targets, want_targets, sizeof targets);
    int64_t count = 0;
    CHECK_OK(strait_sampler_count_targets(&sampler, 0, 3, &count));
    assert_int_equal(count, 4);
    const strait_sampler_fit fit = strait_sampler_measure(&sampler);
    assert_int_equal(fit.n_cut, 1);
    CHECK_NEAR(fit.used, (2.0 + 0 + 4) / 12, 1e-12);
    /* In training every document comes once per epoch, in an order of the seed. */
    CHECK_OK(strait_sampler_init(corpus, CONTEXT, 9, &sampler));
    for (int64_t epoch = 0; epoch < 5; epoch++) {
        int64_t sum = 0;
        for (int64_t i = 0; i < 3; i++)
            sum += 1 << strait_sampler_find(&sampler, 3 * epoch + i).first;
        assert_int_equal(sum, 1 + (1 << 3) + (1 << 4));
    }
    strait_corpus_close(&corpus);
}

static void test_packed_documents_share_rows(void **state) {
    (void)state;
    put_documents("d.bin");
    struct strait_corpus *corpus = NULL;
    CHECK_OK(strait_corpus_open(in_folder("d.bin"), &corpus));
    CHECK_OK(strait_corpus_pack(corpus, 10));
    strait_sampler sampler;
    CHECK_OK(strait_sampler_in_order(corpus, 10, &sampler));
    assert_int_equal(sampler.n_windows, 1); // two inputs and six; one document has none
    int32_t inputs[10], targets[10];
    CHECK_OK(strait_sampler_fill(&sampler, 0, 1, inputs, targets));
    const int32_t want_inputs[] = {10 | FIRST, 11, 30 | FIRST, 31, 32, 33, 34, 35, FIRST, 0};
    const int32_t want_targets[] = {-1, 12, 31, -1, 33, 34, 35, 36, -1, -1};
    assert_memory_equal(inputs, want_inputs, sizeof inputs);
    assert_memory_equal(targets, want_targets, sizeof targets);
    int64_t count = 0;
    CHECK_OK(strait_sampler_count_targets(&sampler, 0, 1, &count));
    assert_int_equal(count, 6);
    const strait_sampler_fit fit = strait_sampler_measure(&sampler);
    assert_int_equal(fit.n_rows, 1);
    CHECK_NEAR(fit.used, 0.8, 1e-12);
    strait_corpus_close(&corpus);
}

/* Many lengths: each document is in one row, no row is too long, and most positions are used. */
static void test_packing_fills_rows(void **state) {
    enum {
        N = 3000,
        ROW = 100
    };
    static int64_t starts[N];
    static int seen[N];
    struct strait_shard shard = {.documents = starts, .n_documents = N, .is_tagged = 1};
    int64_t used = 0;
    (void)state;
    for (int i = 0; i < N; i++) {
        starts[i] = shard.n_tokens;
        shard.n_tokens += 1 +
                          (int64_t)i * i % 131; // some are longer than a row, some have no input
    }
    CHECK_OK(strait_packing_fill(&shard, ROW));
    CHECK_OK(strait_packing_fill(&shard, ROW)); // replaces the first
    for (int64_t r = 0; r < shard.packing.n_rows; r++) {
        int64_t n = 0;
        for (int64_t i = shard.packing.rows[r]; i < shard.packing.rows[r + 1]; i++) {
            n += strait_packing_inputs(&shard, shard.packing.order[i], ROW);
            seen[shard.packing.order[i]]++;
        }
        CHECK(n > 0 && n <= ROW);
        used += n;
    }
    for (int i = 0; i < N; i++)
        assert_int_equal(seen[i], strait_packing_inputs(&shard, i, ROW) > 0);
    CHECK((double)used > 0.95 * ROW * (double)shard.packing.n_rows);
    strait_packing_fini(&shard.packing);
}

static void test_documents_and_text_are_two_sources(void **state) {
    (void)state;
    put_documents("d.bin");
    put_shard(in_folder("t.bin"), 400, 0, (strait_shard_spec){50, NULL, 0});
    struct strait_corpus *corpus = NULL;
    struct strait_mixture *m = NULL;
    char list[512];
    (void)snprintf(list, sizeof list, "%s,%s", in_folder("t.bin"), in_folder("d.bin"));
    CHECK_FAILS(strait_corpus_open(list, &corpus), STRAIT_EDATA, "d.bin: has documents");
    (void)snprintf(list, sizeof list, "%s:1,%s:1", in_folder("t.bin"), in_folder("d.bin"));
    CHECK_OK(strait_mixture_open(list, STRAIT_CORPUS_SHARD, &m));
    assert_int_equal(m->n_documents, 3);
    CHECK_OK(strait_mixture_start(m, CONTEXT, 1));
    enum {
        ROWS = 50
    };
    int32_t inputs[ROWS * CONTEXT], targets[ROWS * CONTEXT];
    int64_t count = 0, seen = 0;
    CHECK_OK(strait_mixture_fill(m, 7, ROWS, inputs, targets));
    CHECK_OK(strait_mixture_count_targets(m, 7, ROWS, &count));
    for (int i = 0; i < ROWS * CONTEXT; i++)
        seen += targets[i] >= 0;
    assert_int_equal(count, seen);
    CHECK(seen > 0 && seen < ROWS * CONTEXT);
    strait_mixture_close(&m);
}

static void test_refuses_damaged_documents(void **state) {
    (void)state;
    put_documents("d.bin");
    char *data = NULL;
    size_t bytes = 0;
    CHECK_OK(strait_file_read(in_folder("d.bin"), 1 << 20, &data, &bytes));
    data[STRAIT_SHARD_HEADER_BYTES + 3] = 0; // the tags of the first token
    put_file(in_folder("bad.bin"), data, bytes);
    struct strait_corpus *corpus = NULL;
    CHECK_FAILS(strait_corpus_open(in_folder("bad.bin"), &corpus), STRAIT_EDATA,
                "bad.bin: its first token does not begin a document");
    strait_alloc_free(data);
    struct strait_shard_writer *writer = NULL;
    CHECK_OK(
        strait_shard_writer_open(in_folder("e.bin"), (strait_shard_spec){50, NULL, 1}, &writer));
    CHECK_FAILS(strait_shard_writer_append(writer, (int32_t[]){50 | FIRST}, 1), STRAIT_EINVAL,
                "id 50");
    strait_shard_writer_close(&writer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_document_has_a_row_of_its_own),
        cmocka_unit_test(test_packed_documents_share_rows),
        cmocka_unit_test(test_packing_fills_rows),
        cmocka_unit_test(test_documents_and_text_are_two_sources),
        cmocka_unit_test(test_refuses_damaged_documents),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
