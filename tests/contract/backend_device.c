/* Memory, streams, events and errors of every backend. */
#include "base/alloc.h"
#include "rig.h"

static void zeroes_memory_and_copies_both_ways(void **state) {
    (void)state;
    for (int i = 0; strait_backends[i] != NULL; i++) {
        if (!rig_is_available(i)) continue;
        struct rig rig;
        rig_open(&rig, (strait_backend_spec){.name = strait_backends[i]->name});
        void *device = NULL, *host = NULL;
        CHECK_OK(rig.be->ops->alloc(rig.be, 1001, &device));
        CHECK_OK(rig.be->ops->alloc_host(rig.be, 1001, &host));
        unsigned char *bytes = host, back[1001];
        memset(back, 7, sizeof back);
        CHECK_OK(rig.be->ops->download(&rig.stream, back, device, sizeof back));
        CHECK_OK(rig.be->ops->wait(&rig.stream));
        for (size_t b = 0; b < sizeof back; b++) {
            assert_int_equal(back[b], 0);
            bytes[b] = (unsigned char)(b * 31);
        }
        CHECK_OK(rig.be->ops->upload(&rig.stream, device, host, 1001));
        CHECK_OK(rig.be->ops->download(&rig.stream, back, device, sizeof back));
        CHECK_OK(rig.be->ops->wait(&rig.stream));
        assert_memory_equal(back, host, 1001);
        rig.be->ops->release(rig.be, device);
        rig.be->ops->release(rig.be, NULL);
        rig.be->ops->release_host(rig.be, host);
        rig.be->ops->release_host(rig.be, NULL);
        rig_close(&rig);
    }
}

/* Overwrites the first byte outside a tensor and the last of a guard, for many sizes. */
static void guards_detect_writes_outside(void **state) {
    (void)state;
    if (rig_is_quick()) return; // quick runs have no guards
    for (int i = 0; strait_backends[i] != NULL; i++) {
        if (!rig_is_available(i)) continue;
        struct rig rig;
        rig_open(&rig, (strait_backend_spec){.name = strait_backends[i]->name});
        for (int64_t bytes = 1; bytes < 300; bytes += 13) {
            const strait_tensor t = rig_bytes(&rig, bytes);
            const int64_t outside[] = {-1, bytes, -1024, bytes + 1023};
            assert_int_equal(rig_count_damaged(&rig), 0);
            for (size_t o = 0; o < COUNT(outside); o++) {
                rig_overwrite(&rig, t, outside[o]);
                assert_int_equal(rig_count_damaged(&rig), 1);
                assert_non_null(strstr(rig.found, o % 2 == 0 ? ", before it: 1 of" : ", after it"));
                assert_int_equal(rig_count_damaged(&rig), 0);
            }
            rig_overwrite(&rig, t, -1);
            rig_overwrite(&rig, t, bytes);
            assert_int_equal(rig_count_damaged(&rig), 2);
            rig_overwrite(&rig, t, 0);
            rig_overwrite(&rig, t, bytes - 1);
            assert_int_equal(rig_count_damaged(&rig), 0);
        }
        rig_close(&rig);
    }
}

static void orders_work_across_streams(void **state) {
    (void)state;
    for (int i = 0; strait_backends[i] != NULL; i++) {
        if (!rig_is_available(i)) continue;
        struct rig rig;
        rig_open(&rig, (strait_backend_spec){.name = strait_backends[i]->name});
        struct strait_stream second;
        CHECK_OK(rig.be->ops->stream_open(rig.be, &second));
        const strait_tensor x = rig_output(&rig, 100, 100);
        CHECK_OK(rig.k->fill(&rig.stream, x, 2));
        CHECK_OK(rig.be->ops->order(&rig.stream, &second));
        CHECK_OK(rig.k->axpy(&second, x, 3, x));
        CHECK_OK(rig.be->ops->wait(&second));
        float values[10000];
        rig_read(&rig, x, values);
        for (size_t v = 0; v < COUNT(values); v++)
            CHECK_NEAR(values[v], 8, 0);
        rig.be->ops->stream_close(&second);
        rig_close(&rig);
    }
}

static void events_are_reached_in_order(void **state) {
    (void)state;
    for (int i = 0; strait_backends[i] != NULL; i++) {
        if (!rig_is_available(i)) continue;
        struct rig rig;
        rig_open(&rig, (strait_backend_spec){.name = strait_backends[i]->name});
        struct strait_event event, never;
        int is_reached = 0;
        float *host = NULL;
        CHECK_OK(rig.be->ops->event_open(rig.be, &event));
        CHECK_OK(rig.be->ops->event_open(rig.be, &never));
        CHECK_OK(rig.be->ops->event_query(&never, 0, &is_reached));
        assert_true(is_reached);
        const strait_tensor x = rig_output(&rig, 300, 300);
        CHECK_OK(rig.be->ops->alloc_host(rig.be, strait_tensor_bytes(x), (void **)&host));
        for (int round = 1; round <= 3; round++) {
            CHECK_OK(rig.k->fill(&rig.stream, x, (float)round));
            CHECK_OK(rig.be->ops->download(&rig.stream, host, x.data, strait_tensor_bytes(x)));
            CHECK_OK(rig.be->ops->event_record(&rig.stream, &event));
            CHECK_OK(rig.be->ops->event_query(&event, 0, &is_reached)); // either answer is right
            CHECK_OK(rig.be->ops->event_query(&event, 1, &is_reached));
            assert_true(is_reached);
            CHECK_OK(rig.be->ops->event_query(&event, 0, &is_reached));
            assert_true(is_reached);
            CHECK_NEAR(host[0], (float)round, 0);
            CHECK_NEAR(host[300 * 300 - 1], (float)round, 0);
        }
        rig.be->ops->release_host(rig.be, host);
        rig.be->ops->event_close(&event);
        rig.be->ops->event_close(&never);
        rig.be->ops->event_close(&never);
        rig_close(&rig);
    }
}

static void provides_every_kernel(void **state) {
    (void)state;
    typedef void (*any)(void);
    for (int i = 0; strait_backends[i] != NULL; i++) {
        if (!rig_is_available(i)) continue;
        struct rig rig;
        rig_open(&rig, (strait_backend_spec){.name = strait_backends[i]->name});
        /* Optional tables are pointers too; a backend of this project has all of them. */
        const struct {
            const void *table;
            size_t bytes;
        } tables[] = {
            {rig.k, sizeof *rig.k},
            {rig.k->conv, sizeof *rig.k->conv},
            {rig.k->topk, sizeof *rig.k->topk},
            {rig.k->log_scale, sizeof *rig.k->log_scale},
            {rig.k->hadamard, sizeof *rig.k->hadamard},
            {rig.k->lowrank, sizeof *rig.k->lowrank},
            {rig.k->subspace, sizeof *rig.k->subspace},
            {rig.k->token_gates, sizeof *rig.k->token_gates},
            {rig.k->autoencoder, sizeof *rig.k->autoencoder},
            {rig.k->groups, sizeof *rig.k->groups},
            {rig.k->norm_conv, sizeof *rig.k->norm_conv},
            {rig.k->conv_rotate, sizeof *rig.k->conv_rotate},
            {rig.k->token_tables, sizeof *rig.k->token_tables},
            {rig.k->fp8, rig.k->fp8 != NULL ? sizeof *rig.k->fp8 : 0}, // GPUs before sm_90 lack it
        };
        for (size_t t = 0; t < COUNT(tables); t++) {
            any entries[sizeof(struct strait_kernels) / sizeof(any)];
            if (tables[t].bytes > 0) memcpy(entries, tables[t].table, tables[t].bytes);
            for (size_t e = 0; e < tables[t].bytes / sizeof *entries; e++)
                if (entries[e] == NULL)
                    fail_msg("%s: kernel %zu of table %zu is absent", rig.be->ops->name, e, t);
        }
        assert_non_null(rig.be->ops->describe(rig.be));
        rig_close(&rig);
    }
}

static void failed_allocations_leak_nothing(void **state) {
    (void)state;
    for (int n = 1; n <= 8; n++) {
        struct strait_backend *be = NULL;
        strait_alloc_fail_at(n);
        const strait_err err = strait_backend_open((strait_backend_spec){.name = "cpu"}, &be);
        strait_alloc_fail_at(0);
        if (err == STRAIT_OK) {
            CHECK(n > 3);
            strait_backend_close(&be);
            return;
        }
        assert_int_equal(err, STRAIT_ENOMEM);
        assert_null(be);
    }
    fail_msg("opening a cpu makes more than eight allocations");
}

static void rejects_unknown_devices(void **state) {
    (void)state;
    struct strait_backend *be = NULL;
    CHECK_FAILS(strait_backend_open((strait_backend_spec){.name = "abacus"}, &be), STRAIT_ECONFIG,
                "abacus");
    CHECK_FAILS(strait_backend_open((strait_backend_spec){.name = "cpu", .ordinal = 3}, &be),
                STRAIT_ECONFIG, "cpu:3");
    CHECK_FAILS(strait_backend_open((strait_backend_spec){.name = "cpu", .n_threads = -1}, &be),
                STRAIT_EINVAL, "threads");
    CHECK_FAILS(
        strait_backend_open((strait_backend_spec){.name = "cpu", .precision = STRAIT_I8}, &be),
        STRAIT_ECONFIG, "fp32 or bf16");
    CHECK_FAILS(
        strait_backend_open(
            (strait_backend_spec){.name = "cpu", .precision = STRAIT_BF16, .is_reference = 1}, &be),
        STRAIT_ECONFIG, "reference loops");
    CHECK_FAILS(
        strait_backend_open(
            (strait_backend_spec){.name = "cpu", .precision = STRAIT_BF16, .has_fp8 = 1}, &be),
        STRAIT_ECONFIG, "cpu has no fp8 products");
    assert_null(be);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zeroes_memory_and_copies_both_ways),
        cmocka_unit_test(guards_detect_writes_outside),
        cmocka_unit_test(orders_work_across_streams),
        cmocka_unit_test(events_are_reached_in_order),
        cmocka_unit_test(provides_every_kernel),
        cmocka_unit_test(failed_allocations_leak_nothing),
        cmocka_unit_test(rejects_unknown_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
