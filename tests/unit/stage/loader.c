/* The loader: ids on the device follow the sampler; shards and received ids are checked. */
#include "stage/loader.h"

#include "../config/tiny_fixture.h"
#include "base/alloc.h"
#include "base/file.h"

static strait_run_plan plan;

static struct strait_loader *open_loader(struct strait_backend *backend) {
    struct strait_loader *loader = NULL;
    CHECK_OK(strait_loader_open(&run, &loader));
    CHECK_OK(strait_run_plan_init(&run, strait_loader_vocab(loader), &plan));
    CHECK_OK(strait_loader_configure(loader, &plan));
    CHECK_OK(strait_loader_prepare(loader, backend, 2));
    return loader;
}

/* Each target is the token after its input, within a row. */
static void check_shifted(const struct strait_loader *loader, int slot) {
    const int32_t *tokens = strait_loader_tokens(loader, slot).data;
    const int32_t *targets = strait_loader_targets(loader, slot).data;
    const int64_t context = run.model.context;
    assert_int_equal(strait_loader_tokens(loader, slot).rows, plan.microbatch * context);
    for (int64_t i = 0; i < plan.microbatch * context; i++)
        if (i % context != context - 1) assert_int_equal(targets[i], tokens[i + 1]);
}

static void loads_the_microbatch_of_a_step_into_a_slot(void **state) {
    (void)state;
    struct strait_backend *backend = NULL;
    struct strait_stream stream;
    CHECK_OK(strait_backend_open((strait_backend_spec){.name = "cpu", .n_threads = 1}, &backend));
    CHECK_OK(backend->ops->stream_open(backend, &stream));
    struct strait_loader *loader = open_loader(backend);
    assert_int_equal(strait_loader_vocab(loader), TINY_VOCAB);
    assert_int_equal(strait_loader_train_tokens(loader), 5000);
    const size_t bytes = strait_tensor_bytes(strait_loader_tokens(loader, 0));
    assert_int_equal(strait_loader_bytes(&plan, 2), 8 * bytes);
    const int64_t n_allocs = strait_alloc_count();
    CHECK_OK(strait_loader_load(loader, &stream, 0, 3, 0));
    CHECK_OK(strait_loader_load(loader, &stream, 1, 3, 1));
    check_shifted(loader, 0);
    check_shifted(loader, 1);
    int32_t first[64];
    assert_int_equal(bytes, sizeof first);
    memcpy(first, strait_loader_tokens(loader, 0).data, bytes);
    assert_memory_not_equal(first, strait_loader_tokens(loader, 1).data, bytes);
    CHECK_OK(strait_loader_load(loader, &stream, 1, 3, 0)); // independent of the loads in between
    assert_memory_equal(first, strait_loader_tokens(loader, 1).data, bytes);
    /* 31 windows in microbatches of 4: the last row of the last one has no targets. */
    assert_int_equal(strait_loader_valid_batches(loader), 8);
    assert_int_equal(strait_loader_valid_tokens(loader), 31 * 16);
    CHECK_OK(strait_loader_load_valid(loader, &stream, 0, 7));
    const int32_t *targets = strait_loader_targets(loader, 0).data;
    assert_true(targets[3 * 16 - 1] >= 0);
    for (int i = 3 * 16; i < 4 * 16; i++)
        assert_int_equal(targets[i], -1);
    assert_int_equal(strait_alloc_count(), n_allocs);
    strait_loader_release(loader);
    strait_loader_close(&loader);
    backend->ops->stream_close(&stream);
    strait_backend_close(&backend);
}

static void limits_validation_to_valid_tokens(void **state) {
    (void)state;
    struct strait_loader *loader = NULL;
    strait_run one = run;
    one.data.valid_tokens = 33; // rounded up to three windows of 16
    CHECK_OK(strait_loader_open(&one, &loader));
    CHECK_OK(strait_run_plan_init(&one, strait_loader_vocab(loader), &plan));
    CHECK_OK(strait_loader_configure(loader, &plan));
    assert_int_equal(strait_loader_valid_tokens(loader), 48);
    strait_loader_close(&loader);
    one.data.valid[0] = '\0';
    CHECK_OK(strait_loader_open(&one, &loader));
    CHECK_OK(strait_loader_configure(loader, &plan));
    assert_int_equal(strait_loader_valid_tokens(loader), 0);
    assert_int_equal(strait_loader_valid_batches(loader), 0);
    strait_loader_close(&loader);
}

static void rejects_shards_that_do_not_match_the_run(void **state) {
    (void)state;
    struct strait_loader *loader = NULL;
    strait_run one = run;
    tiny_shard(scratch_at(&folder, "wide.bin"), 500, 3, 99);
    (void)snprintf(one.data.valid, sizeof one.data.valid, "%s", scratch_at(&folder, "wide.bin"));
    CHECK_FAILS(strait_loader_open(&one, &loader), STRAIT_EDATA, "wide.bin");
    one = run;
    one.model.vocab = TINY_VOCAB - 1;
    CHECK_FAILS(strait_loader_open(&one, &loader), STRAIT_EDATA, "vocabulary");
    (void)snprintf(one.data.tokenizer, sizeof one.data.tokenizer, "%s/none.json", folder.path);
    CHECK_FAILS(strait_loader_open(&one, &loader), STRAIT_EIO, "none.json");
    one = run;
    tiny_shard(scratch_at(&folder, "short.bin"), 10, 3, TINY_VOCAB);
    (void)snprintf(one.data.train, sizeof one.data.train, "%s", scratch_at(&folder, "short.bin"));
    CHECK_OK(strait_loader_open(&one, &loader));
    CHECK_FAILS(strait_loader_configure(loader, &plan), STRAIT_EDATA, "short.bin");
    strait_loader_close(&loader);
    strait_loader_close(&loader);
}

static void open_frees_everything_when_an_allocation_fails(void **state) {
    (void)state;
    strait_err err = STRAIT_ENOMEM;
    int n = 0;
    while (err == STRAIT_ENOMEM) {
        struct strait_loader *loader = NULL;
        strait_alloc_fail_at(++n);
        err = strait_loader_open(&run, &loader);
        strait_alloc_fail_at(0);
        strait_loader_close(&loader);
    }
    assert_int_equal(err, STRAIT_OK);
    assert_true(n > 2);
}

/* A loader without shards stores the ids it is given, and rejects ids outside the vocabulary. */
static void stores_and_checks_received_ids(void **state) {
    (void)state;
    struct strait_loader *loader = NULL;
    struct strait_loader *receiver = NULL;
    CHECK_OK(strait_loader_open(&run, &loader));
    CHECK_OK(strait_run_plan_init(&run, strait_loader_vocab(loader), &plan));
    CHECK_OK(strait_loader_configure(loader, &plan));
    const int64_t windows = strait_loader_valid_windows(loader);
    CHECK_OK(strait_loader_open_remote(TINY_VOCAB, windows, &receiver));
    CHECK_OK(strait_loader_configure(receiver, &plan));
    assert_int_equal(strait_loader_valid_batches(receiver), strait_loader_valid_batches(loader));
    int32_t ids[2][64];
    int32_t seen[2][64];
    assert_int_equal(plan.microbatch * run.model.context, 64);
    CHECK_OK(strait_loader_draw(loader, 5, 1, ids[0], ids[1]));
    CHECK_FAILS(strait_loader_draw(receiver, 5, 1, seen[0], seen[1]), STRAIT_EPROTO, "step 6");
    CHECK_OK(strait_loader_put(receiver, 5, 1, ids[0], ids[1]));
    CHECK_OK(strait_loader_draw(receiver, 5, 1, seen[0], seen[1]));
    assert_memory_equal(ids, seen, sizeof ids);
    CHECK_FAILS(strait_loader_draw(receiver, 5, 0, seen[0], seen[1]), STRAIT_EPROTO,
                "microbatch 0");
    CHECK_FAILS(strait_loader_put(receiver, 5, 2, ids[0], ids[1]), STRAIT_EPROTO, "microbatch 2");
    ids[1][63] = -1; // no target
    CHECK_OK(strait_loader_put_valid(receiver, 0, ids[0], ids[1]));
    ids[0][63] = -1;
    CHECK_FAILS(strait_loader_put_valid(receiver, 0, ids[0], ids[1]), STRAIT_EPROTO, "vocabulary");
    ids[0][63] = TINY_VOCAB;
    CHECK_FAILS(strait_loader_put(receiver, 6, 0, ids[0], NULL), STRAIT_EPROTO, "vocabulary");
    strait_loader_close(&loader);
    strait_loader_close(&receiver);
}

/* Documents of three tokens whose first is a prompt: one target each, and the rest of a row none.
 */
static void counts_targets_of_documents(void **state) {
    (void)state;
    strait_run one = run;
    struct strait_loader *loader = NULL, *receiver = NULL;
    struct strait_shard_writer *writer = NULL;
    const int32_t words[] = {1 | STRAIT_TOKEN_FIRST | STRAIT_TOKEN_UNTRAINED,
                             2 | STRAIT_TOKEN_UNTRAINED, 3};
    int64_t n = 0;
    CHECK_OK(strait_loader_open(&one, &loader));
    CHECK_OK(strait_run_plan_init(&one, strait_loader_vocab(loader), &plan));
    CHECK_OK(strait_loader_configure(loader, &plan));
    CHECK_OK(strait_loader_step_targets(loader, 0, &n));
    assert_int_equal(n, plan.sequences * plan.shape.context); // text: every token
    CHECK_OK(strait_loader_valid_targets(loader, &n));
    assert_int_equal(n, strait_loader_valid_tokens(loader));
    strait_loader_close(&loader);

    (void)snprintf(one.data.train, sizeof one.data.train, "%s/chat.bin", folder.path);
    CHECK_OK(strait_shard_writer_open(one.data.train, (strait_shard_spec){TINY_VOCAB, NULL, 1},
                                      &writer));
    for (int i = 0; i < 5; i++)
        CHECK_OK(strait_shard_writer_append(writer, words, 3));
    CHECK_OK(strait_shard_writer_finish(&writer));
    CHECK_OK(strait_loader_open(&one, &loader));
    CHECK_OK(strait_loader_configure(loader, &plan));
    CHECK_OK(strait_loader_step_targets(loader, 2, &n));
    assert_int_equal(n, plan.sequences);

    /* A worker counts the same from what it receives, and only from all of it. */
    CHECK_OK(strait_loader_open_remote(TINY_VOCAB, 0, &receiver));
    CHECK_OK(strait_loader_configure(receiver, &plan));
    CHECK_OK(strait_loader_step_targets(receiver, 2, &n));
    assert_int_equal(n, plan.sequences * plan.shape.context); // nothing says otherwise yet
    CHECK(plan.n_microbatches > 1);
    for (int64_t i = 0; i < plan.n_microbatches; i++) {
        int32_t ids[2][1024];
        CHECK(plan.microbatch * plan.shape.context <= 1024);
        CHECK_OK(strait_loader_draw(loader, 2, i, ids[0], ids[1]));
        CHECK_OK(strait_loader_put(receiver, 2, i, ids[0], ids[1]));
        if (i == 0)
            CHECK_FAILS(strait_loader_step_targets(receiver, 2, &n), STRAIT_EPROTO,
                        "documents with prompts");
    }
    CHECK_OK(strait_loader_step_targets(receiver, 2, &n));
    assert_int_equal(n, plan.sequences);
    strait_loader_close(&receiver);
    strait_loader_close(&loader);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loads_the_microbatch_of_a_step_into_a_slot),
        cmocka_unit_test(limits_validation_to_valid_tokens),
        cmocka_unit_test(rejects_shards_that_do_not_match_the_run),
        cmocka_unit_test(stores_and_checks_received_ids),
        cmocka_unit_test(open_frees_everything_when_an_allocation_fails),
        cmocka_unit_test(counts_targets_of_documents),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
