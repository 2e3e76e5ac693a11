/* snapshot_records.c - the list of snapshots that may be restored: what it keeps, and its bytes. */
#include "check.h"
#include "swarm/snapshot/records.h"

static strait_digest digest_of(int i) {
    return (strait_digest){{(unsigned char)i}};
}

static int is_even(const void *user, int64_t step) {
    (void)user;
    return step % 2 == 0;
}

static void keeps_the_records_that_are_needed(void **state) {
    (void)state;
    strait_snapshot_records records = {0};
    for (int64_t step = 1; step <= 2 * STRAIT_SNAPSHOT_RECORDS; step++)
        strait_snapshot_records_add(
            &records, &(strait_snapshot_record){.step = step, .digest = digest_of((int)step)},
            is_even, NULL);
    assert_int_equal(records.n, STRAIT_SNAPSHOT_RECORDS);
    for (int64_t step = 4; step <= 2 * STRAIT_SNAPSHOT_RECORDS; step += 2)
        assert_non_null(strait_snapshot_records_find(&records, step));
    strait_snapshot_records_trim(&records, 6);
    assert_null(strait_snapshot_records_find(&records, 8));
    assert_non_null(strait_snapshot_records_find(&records, 6));
    strait_snapshot_records_remove(&records, 6);
    assert_null(strait_snapshot_records_find(&records, 6));
}

static void writes_and_reads_records(void **state) {
    (void)state;
    unsigned char bytes[STRAIT_SNAPSHOT_RECORDS_BYTES];
    strait_snapshot_records records = {0};
    strait_snapshot_records back;
    for (int i = 0; i < 3; i++)
        strait_snapshot_records_add(
            &records, &(strait_snapshot_record){i, (uint32_t)i + 5, digest_of(i)}, NULL, NULL);
    strait_writer w = {bytes, sizeof bytes, 0};
    strait_snapshot_records_write(&records, &w);
    const size_t n = sizeof bytes - w.left;
    assert_int_equal(n, 1 + 3 * STRAIT_SNAPSHOT_RECORD_BYTES);
    strait_reader r = {bytes, n, 0};
    strait_snapshot_records_read(&r, &back);
    assert_true(!r.is_short && r.left == 0);
    assert_int_equal(back.n, records.n);
    for (int i = 0; i < records.n; i++) { // field by field: the padding between them is undefined
        assert_int_equal(back.items[i].step, records.items[i].step);
        assert_int_equal(back.items[i].generation, records.items[i].generation);
        assert_memory_equal(&back.items[i].digest, &records.items[i].digest, sizeof(strait_digest));
    }
    for (size_t cut = 0; cut < n; cut++) {
        r = (strait_reader){bytes, cut, 0};
        strait_snapshot_records_read(&r, &back);
        assert_true(r.is_short);
    }
    bytes[0] = STRAIT_SNAPSHOT_RECORDS + 1;
    r = (strait_reader){bytes, sizeof bytes, 0};
    strait_snapshot_records_read(&r, &back);
    assert_true(r.is_short);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(keeps_the_records_that_are_needed),
                                       cmocka_unit_test(writes_and_reads_records)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
