/* The format of a journal: golden bytes, truncated anywhere, and with any byte damaged. */
#include "metastore/journal_format.h"

#include "base/bytes.h"
#include "check.h"

#include <stdio.h>

enum {
    N_COMMITS = 5,
    BYTES_MAX = 4096
};

static unsigned char bytes[BYTES_MAX];
static size_t ends[N_COMMITS + 2]; // of the header, the term, and each commit
static size_t n_bytes;

/* Commit i puts key "step" and key "k<i>". */
static void add_commit(struct strait_journal_contents *contents, int i) {
    struct strait_metastore_batch batch = {.n_rows = 0};
    char key[8], value[32];
    (void)snprintf(key, sizeof key, "k%d", i);
    (void)snprintf(value, sizeof value, "value number %d", i);
    const strait_metastore_change changes[] = {{.key = key, .data = value, .bytes = strlen(value)},
                                               {.key = "step", .data = &"012345"[i], .bytes = 1}};
    for (int k = 0; k < 2; k++) {
        CHECK_OK(strait_metastore_table_prepare(&contents->entries, &batch, &changes[k]));
        batch.rows[k]->entry.version = (uint64_t)i;
    }
    static unsigned char store[STRAIT_JOURNAL_RECORD_MAX];
    const size_t n = strait_journal_entries_pack(contents, batch.rows, batch.n_rows, store);
    CHECK(n_bytes + n <= sizeof bytes);
    memcpy(bytes + n_bytes, store, n);
    n_bytes += n;
    contents->sequence++;
    strait_metastore_batch_fini(&batch);
}

static int set_up(void **state) {
    (void)state;
    struct strait_journal_contents contents = {.run = "run-1", .salt = 0x0123456789abcdef};
    strait_journal_header_pack(&contents, bytes);
    ends[0] = n_bytes = STRAIT_JOURNAL_HEADER;
    static unsigned char store[STRAIT_JOURNAL_RECORD_MAX];
    const size_t n = strait_journal_term_pack(&contents, 7, "alice", store);
    memcpy(bytes + n_bytes, store, n);
    ends[1] = n_bytes += n;
    contents.sequence++;
    for (int i = 1; i <= N_COMMITS; i++) {
        add_commit(&contents, i);
        ends[i + 1] = n_bytes;
    }
    strait_journal_contents_fini(&contents);
    return 0;
}

/* Returns the number of commits in the contents; fails unless they are exactly the first ones. */
static int commits_of(const struct strait_journal_contents *contents) {
    const int n = (int)contents->version;
    assert_int_equal(contents->entries.n_rows, n == 0 ? 0 : n + 1);
    for (int i = 1; i <= n; i++) {
        char value[32];
        (void)snprintf(value, sizeof value, "value number %d", i);
        const strait_metastore_entry *f = &contents->entries.rows[i - 1]->entry;
        assert_int_equal(f->bytes, strlen(value));
        assert_memory_equal(f->data, value, f->bytes);
        assert_int_equal(f->version, i);
    }
    if (n > 0) assert_int_equal(contents->entries.rows[n]->entry.data[0], '0' + n);
    return n;
}

static void test_parses_a_complete_journal(void **state) {
    (void)state;
    struct strait_journal_contents contents = {.salt = 0};
    CHECK_OK(strait_journal_parse(bytes, n_bytes, &contents));
    assert_int_equal(commits_of(&contents), N_COMMITS);
    assert_int_equal(contents.term, 7);
    assert_string_equal(contents.owner, "alice");
    assert_string_equal(contents.run, "run-1");
    assert_int_equal(contents.sequence, N_COMMITS + 1);
    assert_int_equal(contents.valid_bytes, n_bytes);
    strait_journal_contents_fini(&contents);
}

static void test_truncation_at_any_byte_loses_only_the_last_record(void **state) {
    (void)state;
    for (size_t cut = 0; cut <= n_bytes; cut++) {
        struct strait_journal_contents contents = {.salt = 0};
        if (cut < STRAIT_JOURNAL_HEADER) {
            CHECK_FAILS(strait_journal_parse(bytes, cut, &contents), STRAIT_EDATA, "not a journal");
        } else {
            int n_whole = 0;
            while (n_whole < N_COMMITS + 1 && ends[n_whole + 1] <= cut)
                n_whole++;
            CHECK_OK(strait_journal_parse(bytes, cut, &contents));
            assert_int_equal(contents.valid_bytes, ends[n_whole]);
            assert_int_equal(commits_of(&contents), n_whole > 0 ? n_whole - 1 : 0);
        }
        strait_journal_contents_fini(&contents);
    }
}

static void test_damage_to_any_byte_is_detected(void **state) {
    (void)state;
    static const unsigned char masks[] = {1, 0x80, 0xff};
    for (size_t i = 0; i < n_bytes * sizeof masks; i++) {
        const size_t at = i / sizeof masks;
        struct strait_journal_contents contents = {.salt = 0};
        bytes[at] ^= masks[i % sizeof masks];
        const strait_err err = strait_journal_parse(bytes, n_bytes, &contents);
        bytes[at] ^= masks[i % sizeof masks];
        if (at >= ends[N_COMMITS]) { // the last record counts as torn
            assert_int_equal(err, STRAIT_OK);
            assert_int_equal(commits_of(&contents), N_COMMITS - 1);
        } else {
            assert_int_equal(err, STRAIT_EDATA);
        }
        strait_journal_contents_fini(&contents);
    }
}

/* File systems may leave the length of a write that was not synced, without its bytes. */
static void test_a_tail_of_zeros_is_torn(void **state) {
    (void)state;
    memset(bytes + n_bytes, 0, 1000);
    struct strait_journal_contents contents = {.salt = 0};
    CHECK_OK(strait_journal_parse(bytes, n_bytes + 1000, &contents));
    assert_int_equal(contents.valid_bytes, n_bytes);
    assert_int_equal(commits_of(&contents), N_COMMITS);
    strait_journal_contents_fini(&contents);
}

/* A value may contain the bytes of a record. Without the salt it does not parse as one. */
static void test_a_record_inside_a_torn_value_is_ignored(void **state) {
    (void)state;
    struct strait_journal_contents theirs = {.run = "run-1", .salt = 1, .sequence = 9};
    static unsigned char store[STRAIT_JOURNAL_RECORD_MAX];
    const size_t n = strait_journal_term_pack(&theirs, 8, "mallory", store);
    memcpy(bytes + ends[N_COMMITS] + 30, store, n);
    struct strait_journal_contents contents = {.salt = 0};
    CHECK_OK(strait_journal_parse(bytes, ends[N_COMMITS] + 30 + n, &contents));
    assert_int_equal(commits_of(&contents), N_COMMITS - 1);
    assert_int_equal(contents.term, 7);
    strait_journal_contents_fini(&contents);
}

static void test_rejects_missing_and_foreign_records(void **state) {
    (void)state;
    struct strait_journal_contents contents = {.salt = 0};
    const size_t n = ends[3] - ends[2];
    memmove(bytes + ends[2], bytes + ends[3], n_bytes - ends[3]);
    CHECK_FAILS(strait_journal_parse(bytes, n_bytes - n, &contents), STRAIT_EDATA,
                "a record is missing");
    strait_journal_contents_fini(&contents);
    bytes[8] = 2;
    CHECK_FAILS(strait_journal_parse(bytes, n_bytes, &contents), STRAIT_EDATA, "of version 2");
    strait_journal_contents_fini(&contents);
}

/* The example of docs/formats.md. */
static void test_golden(void **state) {
    (void)state;
    static const unsigned char term[] = {0x4a, 0x52, 0x4e, 0x4c, 0x18, 0x00, 0x00, 0x00,
                                         0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};
    static const unsigned char payload[] = {0x01, 0x07, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
                                            0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
                                            0x00, 0x05, 0x00, 'a',  'l',  'i',  'c',  'e'};
    assert_memory_equal(bytes, "STRAITJ\n\x01\0\0\0\x05\0\0\0run-1\0", 22);
    assert_int_equal(strait_get_u64(bytes + 272), 0x0123456789abcdef);
    assert_memory_equal(bytes + STRAIT_JOURNAL_HEADER, term, sizeof term);
    assert_memory_equal(bytes + STRAIT_JOURNAL_HEADER + 24, payload, sizeof payload);
    assert_int_equal(strait_get_u64(bytes + STRAIT_JOURNAL_HEADER + 16),
                     UINT64_C(0x51e72bf1f6d8c4f4));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_parses_a_complete_journal, set_up),
        cmocka_unit_test_setup(test_truncation_at_any_byte_loses_only_the_last_record, set_up),
        cmocka_unit_test_setup(test_damage_to_any_byte_is_detected, set_up),
        cmocka_unit_test_setup(test_a_tail_of_zeros_is_torn, set_up),
        cmocka_unit_test_setup(test_a_record_inside_a_torn_value_is_ignored, set_up),
        cmocka_unit_test_setup(test_rejects_missing_and_foreign_records, set_up),
        cmocka_unit_test_setup(test_golden, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
