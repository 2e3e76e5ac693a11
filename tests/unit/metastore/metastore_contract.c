/* The contract of the metastore, run on one backend at a time. */
#include "base/alloc.h"
#include "metastore_rig.h"

static const struct metastore_kind *kind;

static int set_up(void **state) {
    static struct metastore_world world;
    world = (struct metastore_world){.state = NULL};
    kind->open(&world);
    *state = &world;
    return 0;
}

static int tear_down(void **state) {
    kind->close(*state);
    return 0;
}

static void test_an_empty_metastore_has_no_entries_and_no_leader(void **state) {
    struct strait_metastore *a = metastore_rig_open(*state, "alice");
    strait_metastore_leader leader = {.term = 9};
    metastore_rig_expect(a, "", "");
    CHECK_OK(strait_metastore_who(a, &leader));
    assert_int_equal(leader.term, 0);
    assert_int_equal(strait_metastore_term(a), 0);
    assert_int_equal(strait_metastore_lease_left_ms(a), 0);
    CHECK_OK(strait_metastore_await(a, 0));
    CHECK_FAILS(strait_metastore_put(a, "k", "v", 1), STRAIT_EDEPOSED,
                "'alice' is not its coordinator");
    CHECK_FAILS(strait_metastore_renew(a), STRAIT_EDEPOSED, "is not its coordinator");
    CHECK_OK(strait_metastore_resign(a));
    strait_metastore_close(&a);
    strait_metastore_close(&a);
}

static void test_only_one_leads(void **state) {
    struct strait_metastore *a = metastore_rig_open(*state, "alice at 192.0.2.1:7000");
    struct strait_metastore *b = metastore_rig_open(*state, "bob");
    const uint64_t term = metastore_rig_claim(a);
    uint64_t none = 77;
    CHECK_FAILS(strait_metastore_claim(b, &none), STRAIT_EAGAIN, "");
    assert_int_equal(none, 77);
    assert_int_equal(strait_metastore_term(b), 0);
    strait_metastore_leader leader = {.term = 0};
    CHECK_OK(strait_metastore_who(b, &leader));
    assert_int_equal(leader.term, term);
    assert_string_equal(leader.owner, "alice at 192.0.2.1:7000");
    assert_int_equal(metastore_rig_claim(a), term);
    CHECK_OK(strait_metastore_renew(a));
    CHECK(strait_metastore_lease_left_ms(a) > 0);
    CHECK_FAILS(strait_metastore_await(b, 30), STRAIT_ETIMEDOUT, "alice");
    strait_metastore_close(&b);
    strait_metastore_close(&a);
}

static void test_entries_are_read_by_prefix_in_key_order(void **state) {
    struct strait_metastore *a = metastore_rig_open(*state, "alice");
    struct strait_metastore *b = metastore_rig_open(*state, "bob");
    (void)metastore_rig_claim(a);
    metastore_rig_put(a, "step/9", "nine");
    metastore_rig_put(a, "member/b", "2");
    metastore_rig_put(a, "member/a", "1");
    metastore_rig_put(a, "step/10", "ten");
    metastore_rig_put(a, "member/a", "3");
    metastore_rig_expect(a, "", "member/a=3 member/b=2 step/10=ten step/9=nine ");
    metastore_rig_expect(b, "member/", "member/a=3 member/b=2 ");
    metastore_rig_expect(b, "step/9", "step/9=nine ");
    metastore_rig_expect(b, "steps", "");
    CHECK_FAILS(strait_metastore_put(b, "step/11", "x", 1), STRAIT_EDEPOSED, "bob");
    strait_metastore_close(&a);
    metastore_rig_expect(b, "step/", "step/10=ten step/9=nine ");
    strait_metastore_close(&b);
}

static void test_a_commit_is_all_or_nothing(void **state) {
    struct strait_metastore *a = metastore_rig_open(*state, "alice");
    uint64_t first = 0, second = 0, third = 99;
    (void)metastore_rig_claim(a);
    const strait_metastore_change make[] = {
        {.key = "x", .data = "1", .bytes = 1, .expected = STRAIT_METASTORE_ABSENT},
        {.key = "y", .data = "1", .bytes = 1}};
    CHECK_OK(strait_metastore_commit(a, make, 2, &first));
    CHECK(first > 0);
    CHECK_FAILS(strait_metastore_commit(a, make, 2, &third), STRAIT_EAGAIN, "'x'");
    assert_int_equal(third, 99);
    const strait_metastore_change change[] = {
        {.key = "x", .data = "2", .bytes = 1, .expected = first},
        {.key = "y", .data = NULL, .expected = first},
        {.key = "z", .data = "2", .bytes = 1}};
    CHECK_OK(strait_metastore_commit(a, change, 3, &second));
    CHECK(second > first);
    metastore_rig_expect(a, "", "x=2 z=2 ");
    const strait_metastore_change stale[] = {
        {.key = "w", .data = "3", .bytes = 1},
        {.key = "z", .data = NULL},
        {.key = "x", .data = "3", .bytes = 1, .expected = first}};
    CHECK_FAILS(strait_metastore_commit(a, stale, 3, NULL), STRAIT_EAGAIN, "'x'");
    const strait_metastore_change gone[] = {
        {.key = "y", .data = "3", .bytes = 1, .expected = second}};
    CHECK_FAILS(strait_metastore_commit(a, gone, 1, NULL), STRAIT_EAGAIN, "'y'");
    metastore_rig_expect(a, "", "x=2 z=2 ");
    const strait_metastore_change again[] = {
        {.key = "y", .data = "", .bytes = 0, .expected = STRAIT_METASTORE_ABSENT},
        {.key = "never", .data = NULL}};
    CHECK_OK(strait_metastore_commit(a, again, 2, &third));
    CHECK(third > second);
    metastore_rig_expect(a, "", "x=2 y= z=2 ");
    struct metastore_rig_list list = {.n = 0};
    CHECK_OK(strait_metastore_read(a, "y", metastore_rig_add, &list));
    assert_int_equal(list.version, third);
    strait_metastore_close(&a);
}

struct whole {
    const unsigned char *data;
    size_t bytes;
    int n;
};

static strait_err compare(void *user, const strait_metastore_entry *entry) {
    struct whole *w = user;
    assert_int_equal(entry->bytes, w->bytes);
    assert_memory_equal(entry->data, w->data, w->bytes);
    w->n++;
    return STRAIT_OK;
}

static void test_values_may_be_any_bytes_up_to_the_limit(void **state) {
    struct strait_metastore *a = metastore_rig_open(*state, "alice");
    void *memory = NULL;
    CHECK_OK(strait_alloc(1, STRAIT_METASTORE_COMMIT_MAX, "value", &memory));
    unsigned char *data = memory;
    for (size_t i = 0; i < STRAIT_METASTORE_COMMIT_MAX; i++)
        data[i] = (unsigned char)(i * 7 + (i >> 8));
    (void)metastore_rig_claim(a);
    const size_t sizes[] = {0, 1, 2, 3, 255, 4097, STRAIT_METASTORE_COMMIT_MAX - 3};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        CHECK_OK(strait_metastore_put(a, "big", data, sizes[i]));
        struct whole w = {data, sizes[i], 0};
        CHECK_OK(strait_metastore_read(a, "big", compare, &w));
        assert_int_equal(w.n, 1);
    }
    CHECK_FAILS(strait_metastore_put(a, "big", data, STRAIT_METASTORE_COMMIT_MAX - 2),
                STRAIT_EINVAL, "does not fit");
    strait_metastore_close(&a);
    a = metastore_rig_open(*state, "alice");
    struct whole w = {data, STRAIT_METASTORE_COMMIT_MAX - 3, 0};
    CHECK_OK(strait_metastore_read(a, "", compare, &w));
    assert_int_equal(w.n, 1);
    strait_metastore_close(&a);
    strait_alloc_free(memory);
}

static void test_rejects_keys_and_commits_out_of_bounds(void **state) {
    struct strait_metastore *a = metastore_rig_open(*state, "alice");
    char longest[STRAIT_METASTORE_KEY_MAX + 1];
    (void)metastore_rig_claim(a);
    memset(longest, 'k', sizeof longest);
    longest[STRAIT_METASTORE_KEY_MAX] = 0;
    CHECK_FAILS(strait_metastore_put(a, longest, "v", 1), STRAIT_EINVAL, "1 to 127");
    longest[STRAIT_METASTORE_KEY_MAX - 1] = 0;
    CHECK_OK(strait_metastore_put(a, longest, "v", 1));
    CHECK_FAILS(strait_metastore_put(a, "", "v", 1), STRAIT_EINVAL, "key ''");
    CHECK_FAILS(strait_metastore_put(a, "a b", "v", 1), STRAIT_EINVAL, "key 'a b'");
    CHECK_FAILS(strait_metastore_put(a, "a\n", "v", 1), STRAIT_EINVAL, "expected");
    CHECK_FAILS(strait_metastore_put(a, "a", NULL, 0), STRAIT_EINVAL, "no value to put");
    strait_metastore_change many[STRAIT_METASTORE_CHANGES_MAX + 1];
    char keys[STRAIT_METASTORE_CHANGES_MAX + 1][8];
    for (int i = 0; i <= STRAIT_METASTORE_CHANGES_MAX; i++) {
        (void)snprintf(keys[i], sizeof keys[i], "m%02d", i);
        many[i] = (strait_metastore_change){.key = keys[i], .data = "v", .bytes = 1};
    }
    CHECK_FAILS(strait_metastore_commit(a, many, STRAIT_METASTORE_CHANGES_MAX + 1, NULL),
                STRAIT_EINVAL, "65 changes");
    CHECK_FAILS(strait_metastore_commit(a, many, 0, NULL), STRAIT_EINVAL, "0 changes");
    many[7].key = "m03";
    CHECK_FAILS(strait_metastore_commit(a, many, 8, NULL), STRAIT_EINVAL, "'m03' occurs twice");
    many[7].key = keys[7];
    CHECK_OK(strait_metastore_commit(a, many, STRAIT_METASTORE_CHANGES_MAX, NULL));
    CHECK_FAILS(strait_metastore_read(a, "a b", metastore_rig_add, NULL), STRAIT_EINVAL, "key");
    strait_metastore_close(&a);
}

static void test_a_leader_after_a_resignation_sees_all_commits(void **state) {
    struct strait_metastore *a = metastore_rig_open(*state, "alice");
    struct strait_metastore *b = metastore_rig_open(*state, "bob");
    const uint64_t first = metastore_rig_claim(a);
    uint64_t before = 0, after = 0;
    const strait_metastore_change change = {.key = "step", .data = "5", .bytes = 1};
    CHECK_OK(strait_metastore_commit(a, &change, 1, &before));
    CHECK_OK(strait_metastore_resign(a));
    assert_int_equal(strait_metastore_term(a), 0);
    CHECK_OK(strait_metastore_await(b, 2000));
    const uint64_t second = metastore_rig_claim(b);
    CHECK(second > first);
    metastore_rig_expect(b, "", "step=5 ");
    CHECK_OK(strait_metastore_commit(b, &change, 1, &after));
    CHECK(after > before);
    CHECK_FAILS(strait_metastore_put(a, "step", "6", 1), STRAIT_EDEPOSED, "alice");
    metastore_rig_expect(a, "", "step=5 ");
    strait_metastore_close(&b);
    CHECK(metastore_rig_claim(a) > second);
    strait_metastore_close(&a);
}

static void test_a_deposed_leader_changes_nothing(void **state) {
    struct strait_metastore *a = metastore_rig_open(*state, "alice");
    struct strait_metastore *b = metastore_rig_open(*state, "bob");
    const uint64_t first = metastore_rig_claim(a);
    metastore_rig_put(a, "step", "5");
    kind->expire(*state);
    const uint64_t second = metastore_rig_claim(b);
    CHECK(second > first);
    assert_int_equal(strait_metastore_term(a), first); // it has not been notified yet
    CHECK_FAILS(strait_metastore_put(a, "step", "6", 1), STRAIT_EDEPOSED, "'alice'");
    assert_int_equal(strait_metastore_term(a), 0);
    metastore_rig_expect(b, "", "step=5 ");
    metastore_rig_put(b, "step", "7");
    uint64_t none = 0;
    CHECK_FAILS(strait_metastore_claim(a, &none), STRAIT_EAGAIN, "");
    kind->expire(*state);
    CHECK(metastore_rig_claim(a) > second);
    CHECK_FAILS(strait_metastore_renew(b), STRAIT_EDEPOSED, "'bob'");
    metastore_rig_expect(a, "", "step=7 ");
    strait_metastore_close(&b);
    metastore_rig_put(a, "step", "8"); // closing b does not affect the leader
    strait_metastore_close(&a);
}

static strait_err stop(void *user, const strait_metastore_entry *entry) {
    ++*(int *)user;
    return STRAIT_FAIL(STRAIT_EPROTO, "enough of %s", entry->key);
}

static void test_an_error_of_the_visitor_ends_the_read(void **state) {
    struct strait_metastore *a = metastore_rig_open(*state, "alice");
    int n = 0;
    (void)metastore_rig_claim(a);
    metastore_rig_put(a, "k1", "v");
    metastore_rig_put(a, "k2", "v");
    CHECK_FAILS(strait_metastore_read(a, "", stop, &n), STRAIT_EPROTO, "enough of k1");
    assert_int_equal(n, 1);
    strait_metastore_close(&a);
}

enum {
    N_KEYS = 12,
    N_TURNS = 150
};

/* Random changes, compared with an array of values, while leaders change. */
static void test_random_changes_match_a_model(void **state) {
    uint64_t versions[N_KEYS] = {0};
    char values[N_KEYS][16] = {""};
    struct strait_metastore *a = metastore_rig_open(*state, "alice");
    (void)metastore_rig_claim(a);
    for (uint64_t turn = 0; turn < N_TURNS; turn++) {
        const uint32_t draw = (uint32_t)(turn * 2654435761u);
        const int k = (int)(draw >> 8) % N_KEYS;
        char key[16], value[16];
        (void)snprintf(key, sizeof key, "key-%02d", k);
        (void)snprintf(value, sizeof value, "%u", draw);
        const int is_removal = (draw >> 4) % 5 == 0, is_stale = (draw >> 20) % 4 == 0;
        strait_metastore_change change = {.key = key, .data = value, .bytes = strlen(value)};
        change.expected = versions[k] != 0 ? versions[k] : STRAIT_METASTORE_ABSENT;
        if (is_removal) change.data = NULL;
        if (is_stale) change.expected = versions[k] != 0 ? STRAIT_METASTORE_ABSENT : 1;
        uint64_t version = 0;
        const strait_err err = strait_metastore_commit(a, &change, 1, &version);
        assert_int_equal(err, is_stale ? STRAIT_EAGAIN : STRAIT_OK);
        if (!is_stale) {
            versions[k] = is_removal ? 0 : version;
            memcpy(values[k], value, sizeof value);
        }
        if (turn % 40 != 39) continue;
        strait_metastore_close(&a);
        a = metastore_rig_open(*state, "alice");
        (void)metastore_rig_claim(a);
    }
    char expected[1024] = "";
    size_t n = 0;
    for (int k = 0; k < N_KEYS; k++)
        if (versions[k] != 0)
            n += (size_t)snprintf(expected + n, sizeof expected - n, "key-%02d=%s ", k, values[k]);
    metastore_rig_expect(a, "", expected);
    strait_metastore_close(&a);
}

int record_contract(const struct metastore_kind *which) {
    kind = which;
#define ASK(test) \
    { .name = #test, .test_func = (test), .setup_func = set_up, .teardown_func = tear_down }
    const struct CMUnitTest tests[] = {
        ASK(test_an_empty_metastore_has_no_entries_and_no_leader),
        ASK(test_only_one_leads),
        ASK(test_entries_are_read_by_prefix_in_key_order),
        ASK(test_a_commit_is_all_or_nothing),
        ASK(test_values_may_be_any_bytes_up_to_the_limit),
        ASK(test_rejects_keys_and_commits_out_of_bounds),
        ASK(test_a_leader_after_a_resignation_sees_all_commits),
        ASK(test_a_deposed_leader_changes_nothing),
        ASK(test_an_error_of_the_visitor_ends_the_read),
        ASK(test_random_changes_match_a_model),
    };
    return cmocka_run_group_tests_name(which->name, tests, NULL, NULL);
}
