/* The contract suite on the memory and journal backends; and invalid configurations. */
#include "base/alloc.h"
#include "metastore/memory_store.h"
#include "metastore_rig.h"
#include "scratch.h"

/* ---- memory ---- */

static void open_memory(struct metastore_world *world) {
    CHECK_OK(strait_memory_store_open(&world->config.memory));
    world->config.store = "memory";
    world->config.run = "run-1";
}

static void close_memory(struct metastore_world *world) {
    strait_memory_store_close(&world->config.memory);
}

static void expire_memory(struct metastore_world *world) {
    strait_memory_store_advance_clock(world->config.memory, 6000);
}

static const struct metastore_kind memory = {"memory", open_memory, close_memory, expire_memory};

/* ---- journal ---- */

static scratch folder;
static char store[STRAIT_PATH_MAX];

static void open_journal(struct metastore_world *world) {
    folder = scratch_open();
    CHECK_OK(strait_file_path(store, "journal:%s", scratch_at(&folder, "journal")));
    world->config.store = store;
    world->config.run = "run-1";
}

static void close_journal(struct metastore_world *world) {
    (void)world;
    scratch_close(&folder);
}

/* A journal's leader can only lose its lock file. */
static void expire_journal(struct metastore_world *world) {
    (void)world;
    CHECK(unlink(scratch_at(&folder, "journal.lock")) == 0);
}

static const struct metastore_kind journal = {"journal", open_journal, close_journal,
                                              expire_journal};

/* ---- configurations and injected errors ---- */

static strait_err try_open(strait_metastore_config config) {
    struct strait_metastore *opened = NULL;
    const strait_err err = strait_metastore_open(&config, &opened);
    strait_metastore_close(&opened);
    return err;
}

static void test_rejects_invalid_configs(void **state) {
    (void)state;
    const strait_metastore_config good = {.store = "journal:x", .run = "r", .owner = "o"};
    strait_metastore_config bad = good;
    char name[STRAIT_METASTORE_NAME_MAX + 1];
    memset(name, 'n', sizeof name);
    name[STRAIT_METASTORE_NAME_MAX] = 0;
    CHECK_OK(try_open(good));
    bad.store = "paper:x";
    CHECK_FAILS(try_open(bad), STRAIT_ECONFIG, "metastore 'paper:x': expected journal:PATH");
    bad.store = NULL;
    CHECK_FAILS(try_open(bad), STRAIT_ECONFIG, "expected journal:PATH");
    bad.store = "journal:";
    CHECK_FAILS(try_open(bad), STRAIT_ECONFIG, "expected journal:PATH");
    bad.store = "memory";
    CHECK_FAILS(try_open(bad), STRAIT_ECONFIG, "needs config.memory");
    bad = good;
    bad.run = "a/b";
    CHECK_FAILS(try_open(bad), STRAIT_ECONFIG, "run 'a/b'");
    bad = good;
    bad.owner = name;
    CHECK_FAILS(try_open(bad), STRAIT_ECONFIG, "1 to 255 bytes");
    bad.owner = "";
    CHECK_FAILS(try_open(bad), STRAIT_ECONFIG, "1 to 255 bytes");
    bad = good;
    bad.ttl_ms = -1;
    CHECK_FAILS(try_open(bad), STRAIT_ECONFIG, "lease of -1 ms");
}

static void test_an_injected_error_fails_every_call(void **state) {
    (void)state;
    struct metastore_world world = {.state = NULL};
    open_memory(&world);
    struct strait_metastore *a = metastore_rig_open(&world, "alice");
    (void)metastore_rig_claim(a);
    metastore_rig_put(a, "k", "1");
    strait_memory_store_inject_error(world.config.memory, STRAIT_ETIMEDOUT, 0);
    CHECK_FAILS(strait_metastore_put(a, "k", "2", 1), STRAIT_ETIMEDOUT, "unreachable");
    CHECK_FAILS(strait_metastore_renew(a), STRAIT_ETIMEDOUT, "unreachable");
    strait_memory_store_inject_error(world.config.memory, STRAIT_ETIMEDOUT, 1);
    CHECK_FAILS(strait_metastore_put(a, "late", "3", 1), STRAIT_ETIMEDOUT, "unreachable");
    strait_memory_store_inject_error(world.config.memory, STRAIT_OK, 0);
    metastore_rig_expect(a, "", "k=1 late=3 ");
    strait_memory_store_advance_clock(world.config.memory, 5999);
    assert_int_equal(strait_metastore_lease_left_ms(a), 1);
    CHECK_OK(strait_metastore_renew(a));
    strait_memory_store_advance_clock(world.config.memory, 5999);
    CHECK_OK(strait_metastore_put(a, "k", "4", 1));
    strait_memory_store_advance_clock(world.config.memory, 1);
    CHECK_FAILS(strait_metastore_put(a, "k", "5", 1), STRAIT_EDEPOSED, "alice");
    strait_metastore_close(&a);
    close_memory(&world);
}

/* Whichever allocation fails, the error is reported and committed entries stay. */
static void test_failed_allocations_are_reported_and_lose_nothing(void **state) {
    (void)state;
    const struct metastore_kind *kinds[] = {&memory, &journal};
    for (size_t i = 0; i < 2; i++) {
        struct metastore_world world = {.state = NULL};
        kinds[i]->open(&world);
        int n_failed = 0;
        for (int64_t n = 1; n < 100; n++) {
            strait_metastore_config config = world.config;
            struct strait_metastore *a = NULL;
            uint64_t term = 0;
            config.owner = "alice";
            strait_alloc_fail_at(n);
            strait_err err = strait_metastore_open(&config, &a);
            if (err == STRAIT_OK) err = strait_metastore_claim(a, &term);
            if (err == STRAIT_OK) err = strait_metastore_put(a, "k", "v", 1);
            strait_alloc_fail_at(0);
            if (err == STRAIT_OK) metastore_rig_expect(a, "", "k=v ");
            strait_metastore_close(&a);
            if (err == STRAIT_OK) break;
            assert_int_equal(err, STRAIT_ENOMEM);
            n_failed++;
        }
        CHECK(n_failed >= 3 && n_failed < 50);
        kinds[i]->close(&world);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rejects_invalid_configs),
        cmocka_unit_test(test_an_injected_error_fails_every_call),
        cmocka_unit_test(test_failed_allocations_are_reported_and_lose_nothing),
    };
    int failed = record_contract(&memory);
    failed += record_contract(&journal);
    failed += cmocka_run_group_tests(tests, NULL, NULL);
    return failed;
}
