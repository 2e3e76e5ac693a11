/* What a host stores for an audit: of exactly the expected sizes, once, and the same again. */
#include "swarm/host/audit/evidence.h"

#include "check.h"
#include "net/core/frame.h"
#include "scratch.h"
#include "stage/boundary/boundary.h"

#include <dirent.h>
#include <string.h>

enum {
    SNAPSHOT = STRAIT_PIECE_BYTES + 1000,
    N_MICROBATCHES = 2,
    FROM = 5,
    TO = 8
};

static struct strait_msg_pool *pool;
static struct strait_evidence evidence;
static unsigned char snapshot[SNAPSHOT], copy[SNAPSHOT];

static strait_evidence_spec spec_in(const char *folder) {
    return (strait_evidence_spec){.folder = folder,
                                  .stage = 1,
                                  .from = FROM,
                                  .to = TO,
                                  .snapshot_bytes = SNAPSHOT,
                                  .groups = {N_MICROBATCHES, 1, 1},
                                  .crossing_bytes = {12, 7}};
}

static struct strait_msg *crossing(int side, int64_t step, int microbatch) {
    struct strait_msg *msg = NULL;
    CHECK_OK(strait_msg_open(pool, STRAIT_MSG_CROSSING, side == 0 ? 12 : 7, &msg));
    msg->boundary = (uint16_t)side; // of stage 1: the one before it, and the one after
    msg->step = (uint32_t)step;
    msg->microbatch = (uint16_t)microbatch;
    msg->basis = (uint16_t)(100 * side + step);
    memset(msg->body, (int)(16 * side + 2 * step + microbatch), msg->size);
    return msg;
}

static strait_err add(int side, int64_t step, int microbatch) {
    struct strait_msg *msg = crossing(side, step, microbatch);
    const strait_err err = strait_evidence_add_crossing(&evidence, (strait_evidence_part)side, msg);
    strait_msg_close(&msg);
    return err;
}

static strait_err add_piece(size_t offset, size_t bytes) {
    const strait_piece piece = {.stage = 1,
                                .step = FROM,
                                .offset = offset,
                                .total = SNAPSHOT,
                                .data = snapshot + offset,
                                .bytes = bytes};
    return strait_evidence_add_piece(&evidence, &piece);
}

static int n_files(const char *folder) {
    DIR *open = opendir(folder);
    int n = -2;                   // itself and its parent
    while (readdir(open) != NULL) // NOLINT(concurrency-mt-unsafe): our own handle
        n++;
    (void)closedir(open);
    return n;
}

static void gives_back_what_it_got(void **state) {
    (void)state;
    scratch folder = scratch_open();
    const strait_evidence_spec spec = spec_in(folder.path);
    strait_digest expected, sums[2] = {{{0}}};
    CHECK_OK(strait_msg_pool_open(&pool));
    for (int i = 0; i < SNAPSHOT; i++)
        snapshot[i] = (unsigned char)(i * 7);
    const int n_before = n_files(folder.path);
    CHECK_OK(strait_evidence_init(&evidence, &spec));
    assert_int_equal(n_files(folder.path), n_before); // the file has no name
    for (int side = 0; side < 2; side++)
        for (int64_t step = FROM; step < TO; step++) {
            strait_digest one = {{0}};
            for (int m = 0; m < N_MICROBATCHES; m++) {
                struct strait_msg *msg = crossing(side, step, m);
                CHECK_OK(strait_digest_extend(&one, msg->body, msg->size));
                strait_msg_close(&msg);
                assert_false(strait_evidence_has(&evidence, (strait_evidence_part)side));
                CHECK_OK(add(side, step, m));
            }
            strait_digest of_step;
            CHECK_OK(strait_crossing_hash_step(&one, 1, &of_step));
            CHECK_OK(strait_digest_extend(&sums[side], of_step.bytes, sizeof of_step.bytes));
        }
    CHECK_OK(add_piece(0, STRAIT_PIECE_BYTES));
    assert_false(strait_evidence_has(&evidence, STRAIT_EVIDENCE_SNAPSHOT));
    CHECK_OK(add_piece(STRAIT_PIECE_BYTES, SNAPSHOT - STRAIT_PIECE_BYTES));
    CHECK_OK(strait_sha256(snapshot, SNAPSHOT, &expected));
    assert_true(strait_digest_equal(&expected, &evidence.digests[STRAIT_EVIDENCE_SNAPSHOT]));
    for (int side = 0; side < 2; side++) {
        assert_true(strait_evidence_has(&evidence, (strait_evidence_part)side));
        assert_true(strait_digest_equal(&sums[side], &evidence.digests[side]));
        struct strait_msg *msg = NULL, *first = crossing(side, 6, 1);
        CHECK_OK(strait_evidence_crossing(&evidence, pool, (strait_evidence_part)side, 6, 1, &msg));
        assert_int_equal(msg->size, first->size);
        assert_memory_equal(msg->body, first->body, first->size);
        assert_true(msg->boundary == side && msg->step == 6 && msg->microbatch == 1);
        assert_int_equal(msg->basis, first->basis);
        strait_msg_close(&msg);
        strait_msg_close(&first);
    }
    for (size_t at = 0; at < SNAPSHOT;) {
        struct strait_msg *msg = NULL;
        strait_piece piece;
        CHECK_OK(strait_evidence_piece(&evidence, pool, &at, &msg));
        CHECK_OK(strait_piece_unpack(msg, &piece));
        memcpy(copy + piece.offset, piece.data, piece.bytes);
        strait_msg_close(&msg);
    }
    assert_memory_equal(copy, snapshot, SNAPSHOT);
    strait_evidence_fini(&evidence);
    strait_msg_pool_close(&pool);
    scratch_close(&folder);
}

/* Whatever was not asked for changes nothing: another step, boundary, size, or the same again. */
static void takes_only_what_was_asked_for(void **state) {
    (void)state;
    scratch folder = scratch_open();
    strait_evidence_spec spec = spec_in(folder.path);
    CHECK_OK(strait_msg_pool_open(&pool));
    CHECK_OK(strait_evidence_init(&evidence, &spec));
    CHECK_FAILS(add(0, FROM, N_MICROBATCHES), STRAIT_EPROTO, "another crossing");
    CHECK_FAILS(add(0, FROM - 1, 0), STRAIT_EPROTO, "another crossing");
    CHECK_OK(add(0, FROM, 0));
    CHECK_FAILS(add(0, FROM, 0), STRAIT_EPROTO, "another crossing");
    struct strait_msg *msg = crossing(1, FROM, 0);
    CHECK_FAILS(strait_evidence_add_crossing(&evidence, STRAIT_EVIDENCE_PREV, msg), STRAIT_EPROTO,
                "another crossing"); // of the other boundary
    msg->flags = STRAIT_CROSSING_IS_VALID;
    CHECK_FAILS(strait_evidence_add_crossing(&evidence, STRAIT_EVIDENCE_NEXT, msg), STRAIT_EPROTO,
                "another crossing");
    strait_msg_close(&msg);
    CHECK_FAILS(add_piece(100, 100), STRAIT_EPROTO, "another snapshot");
    strait_piece piece = {
        .stage = 1, .step = FROM + 1, .total = SNAPSHOT, .data = snapshot, .bytes = 10};
    CHECK_FAILS(strait_evidence_add_piece(&evidence, &piece), STRAIT_EPROTO, "another snapshot");
    piece.step = FROM;
    piece.total = SNAPSHOT + 1;
    CHECK_FAILS(strait_evidence_add_piece(&evidence, &piece), STRAIT_EPROTO, "another snapshot");
    /* Several replicas give in any order. */
    for (int m = N_MICROBATCHES - 1; m >= 0; m--)
        for (int64_t step = TO - 1; step >= FROM; step--) {
            if (step == FROM && m == 0) continue; // it is here
            assert_false(strait_evidence_has_crossing(&evidence, STRAIT_EVIDENCE_PREV, step, m));
            CHECK_OK(add(0, step, m));
            assert_true(strait_evidence_has_crossing(&evidence, STRAIT_EVIDENCE_PREV, step, m));
        }
    assert_true(strait_evidence_has(&evidence, STRAIT_EVIDENCE_PREV));
    CHECK_FAILS(add(0, TO, 0), STRAIT_EPROTO, "another crossing");
    strait_evidence_fini(&evidence);
    strait_msg_pool_close(&pool);
    spec.folder = "/nowhere/at/all";
    CHECK_FAILS(strait_evidence_init(&evidence, &spec), STRAIT_EIO, "cannot create a file");
    strait_evidence_fini(&evidence);
    scratch_close(&folder);
}

/* The first stage has no previous one, and an interval from the seed no snapshot. */
static void needs_nothing_of_what_is_not_there(void **state) {
    (void)state;
    scratch folder = scratch_open();
    const strait_evidence_spec spec = {
        .folder = folder.path, .to = 3, .groups = {1, 1, 1}, .crossing_bytes = {0, 7}};
    CHECK_OK(strait_evidence_init(&evidence, &spec));
    assert_true(strait_evidence_has(&evidence, STRAIT_EVIDENCE_PREV));
    assert_true(strait_evidence_has(&evidence, STRAIT_EVIDENCE_SNAPSHOT));
    assert_false(strait_evidence_has(&evidence, STRAIT_EVIDENCE_NEXT));
    strait_evidence_fini(&evidence);
    scratch_close(&folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(gives_back_what_it_got),
                                       cmocka_unit_test(takes_only_what_was_asked_for),
                                       cmocka_unit_test(needs_nothing_of_what_is_not_there)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
