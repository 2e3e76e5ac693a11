/* Snapshots of stages: taken, sent in pieces, restored; and headers from untrusted runners. */
#include "swarm/snapshot/snapshot.h"

#include "../config/tiny_run.h"
#include "base/alloc.h"
#include "swarm/snapshot/header.h"
#include "swarm/snapshot/reader.h"

static strait_run run;
static scratch folder;
static strait_run_plan plan;
static struct strait_loader *feeds[2];
static struct strait_runner *runners[2]; // of the same stage, in different states

static int set_up(void **state) {
    (void)state;
    folder = scratch_open();
    tiny_run(&folder, &run);
    run.stages.count = 2;
    CHECK_OK(strait_run_plan_init(&run, TINY_VOCAB, &plan));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(strait_loader_open(&run, &feeds[i]));
        CHECK_OK(strait_loader_configure(feeds[i], &plan));
        CHECK_OK(strait_runner_open(&run, &plan, &(strait_runner_place){1, 0, 1}, feeds[i],
                                    &runners[i]));
        CHECK_OK(strait_runner_init_weights(runners[i], (uint64_t)(10 + i)));
    }
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        strait_runner_close(&runners[i]);
        strait_loader_close(&feeds[i]);
    }
    scratch_close(&folder);
    return 0;
}

static void restores_what_it_took(void **state) {
    (void)state;
    struct strait_snapshot a = {0};
    struct strait_snapshot b = {0};
    struct strait_snapshot c = {0};
    CHECK_OK(strait_snapshot_capture(runners[0], 7, 3, &a));
    CHECK_OK(strait_snapshot_capture(runners[1], 7, 3, &b));
    assert_int_equal(a.bytes, b.bytes);
    assert_true(memcmp(a.data, b.data, a.bytes) != 0);
    for (size_t at = 0; at < a.bytes;) { // through pieces
        strait_piece piece;
        strait_snapshot_next_piece(&a, &at, &piece);
        assert_false(strait_snapshot_is_complete(&c));
        CHECK_OK(strait_snapshot_add_piece(&c, &piece, a.bytes));
    }
    assert_true(strait_snapshot_is_complete(&c));
    CHECK_OK(strait_snapshot_restore(&c, runners[1]));
    CHECK_OK(strait_snapshot_capture(runners[1], 7, 3, &b));
    assert_memory_equal(a.data, b.data, a.bytes);
    c.data[9]++; // another name
    CHECK_FAILS(strait_snapshot_restore(&c, runners[1]), STRAIT_EDATA, "is missing");
    CHECK_OK(strait_snapshot_capture(runners[1], 7, 3, &b));
    assert_memory_equal(a.data, b.data, a.bytes);
    strait_snapshot_fini(&a);
    strait_snapshot_fini(&b);
    strait_snapshot_fini(&c);
}

static void rejects_pieces_out_of_order(void **state) {
    (void)state;
    struct strait_snapshot snapshot = {0};
    unsigned char data[16] = {0};
    strait_piece piece = {.stage = 1, .step = 2, .total = 32, .data = data, .bytes = 16};
    CHECK_FAILS(strait_snapshot_add_piece(&snapshot, &piece, 31), STRAIT_EPROTO, "expected 31");
    CHECK_OK(strait_snapshot_add_piece(&snapshot, &piece, 32));
    piece.offset = 8;
    CHECK_FAILS(strait_snapshot_add_piece(&snapshot, &piece, 32), STRAIT_EPROTO, "out of order");
    piece.offset = 16;
    piece.step = 3;
    CHECK_FAILS(strait_snapshot_add_piece(&snapshot, &piece, 32), STRAIT_EPROTO, "out of order");
    piece.step = 2;
    CHECK_OK(strait_snapshot_add_piece(&snapshot, &piece, 32));
    assert_true(strait_snapshot_is_complete(&snapshot));
    assert_int_equal(strait_snapshot_add_piece(&snapshot, &piece, 32), STRAIT_EPROTO);
    strait_snapshot_fini(&snapshot);
}

/* A reader of a checkpoint takes no memory but that of the header and of its hash. */
static void open_reader(struct strait_snapshot_reader *reader,
                        const struct strait_checkpoint *checkpoint,
                        const struct strait_snapshot *list, size_t whole) {
    const int64_t prev = strait_alloc_count();
    CHECK_OK(strait_snapshot_reader_init(reader, checkpoint, list->data, list->bytes, whole));
    assert_int_equal(strait_alloc_count(), prev + 2);
    assert_int_equal(reader->bytes, whole);
    reader->stage = 1;
    reader->step = 7;
    reader->generation = 9;
}

static void checkpoints_and_snapshots_have_the_same_tensors(void **state) {
    (void)state;
    struct strait_snapshot snapshot = {0};
    struct strait_snapshot list = {0};
    struct strait_snapshot filled = {0};
    struct strait_snapshot_reader reader = {0};
    struct strait_checkpoint *checkpoint = NULL;
    size_t whole = 0;
    CHECK_OK(strait_snapshot_capture(runners[0], 7, 3, &snapshot));
    CHECK_OK(strait_checkpoint_prepare(folder.path));
    CHECK_OK(strait_checkpoint_begin(folder.path, 7));
    CHECK_OK(strait_snapshot_write(&snapshot, folder.path, 7));
    const strait_checkpoint_stage_file files[] = {{.stage = 1}, {.stage = 1, .is_state = 1}};
    const strait_checkpoint_plan commit = {
        .step = 7, .tokenizer = "", .files = files, .n_files = 2, .keep = 1};
    CHECK_OK(strait_checkpoint_commit(folder.path, &commit));
    CHECK_OK(strait_checkpoint_open(folder.path, STRAIT_CHECKPOINT_NEWEST, &checkpoint));
    CHECK_OK(strait_snapshot_header(runners[0], &list, &whole));
    assert_int_equal(whole, snapshot.bytes);
    CHECK_FAILS(strait_snapshot_reader_init(&reader, checkpoint, list.data, list.bytes, whole - 1),
                STRAIT_EPROTO, "invalid header");
    open_reader(&reader, checkpoint, &list, whole);
    while (!strait_snapshot_reader_is_done(&reader)) {
        strait_piece piece;
        const int64_t prev = strait_alloc_count();
        CHECK_OK(strait_snapshot_reader_next(&reader, &piece));
        assert_int_equal(strait_alloc_count(), prev);
        CHECK_OK(strait_snapshot_add_piece(&filled, &piece, whole));
    }
    assert_true(strait_digest_equal(&reader.digest, &snapshot.digest));
    strait_snapshot_reader_fini(&reader);
    assert_true(strait_snapshot_is_complete(&filled));
    assert_true(filled.stage == 1 && filled.step == 7 && filled.generation == 9);
    assert_int_equal(filled.bytes, snapshot.bytes);
    assert_memory_equal(filled.data, snapshot.data, snapshot.bytes);
    for (size_t n = 0; n < list.bytes; n++) // truncated anywhere
        assert_int_equal(strait_snapshot_reader_init(&reader, checkpoint, list.data, n, whole),
                         STRAIT_EPROTO);
    list.data[9] = '/'; // a tensor that does not exist
    assert_int_equal(strait_snapshot_reader_init(&reader, checkpoint, list.data, list.bytes, whole),
                     STRAIT_EDATA);
    strait_put_u32(list.data + 4, UINT32_MAX);
    assert_int_equal(strait_snapshot_reader_init(&reader, checkpoint, list.data, list.bytes, whole),
                     STRAIT_EPROTO);
    snapshot.bytes--;
    snapshot.filled--;
    assert_int_equal(strait_snapshot_write(&snapshot, folder.path, 8), STRAIT_EPROTO);
    strait_checkpoint_close(&checkpoint);
    strait_snapshot_fini(&snapshot);
    strait_snapshot_fini(&list);
    strait_snapshot_fini(&filled);
}

static void finds_nonfinite_values(void **state) {
    (void)state;
    struct strait_snapshot snapshot = {0};
    CHECK_FAILS(strait_snapshot_check_finite(&snapshot), STRAIT_EPROTO, "invalid header");
    CHECK_OK(strait_snapshot_capture(runners[0], 7, 3, &snapshot));
    CHECK_OK(strait_snapshot_check_finite(&snapshot));
    unsigned char *last = snapshot.data + snapshot.bytes - 4;
    static const uint32_t bad[] = {0x7fc00000, 0xff800000, 0x7f800001, 0xffffffff};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        strait_put_u32(last, bad[i]);
        CHECK_FAILS(strait_snapshot_check_finite(&snapshot), STRAIT_ENONFINITE,
                    "stage 1 at step 7: ");
    }
    strait_put_u32(last, 0xff7fffff); // the largest finite value
    CHECK_OK(strait_snapshot_check_finite(&snapshot));
    snapshot.bytes--;
    snapshot.filled--;
    CHECK_FAILS(strait_snapshot_check_finite(&snapshot), STRAIT_EPROTO, "invalid header");
    strait_snapshot_fini(&snapshot);
}

/* ---- snapshots of other stages ---- */

typedef struct change {
    int at;                    // a tensor, from 0
    int is_out, is_twice;      // it is left out; it is there twice
    int more_rows, other_kind; // it has one more row; it is state
    char first;                // first letter of its name; 0: unchanged
    const char *error;         // expected text, with the tensor's name
} change;

static void write_tensor(strait_writer *w, const strait_snapshot_tensor *tensor) {
    strait_writer_uint(w, strlen(tensor->name), 1);
    strait_writer_copy(w, tensor->name, strlen(tensor->name));
    strait_writer_uint(w, (uint64_t)tensor->dtype, 1);
    strait_writer_uint(w, (uint64_t)tensor->is_state, 1);
    strait_writer_uint(w, (uint64_t)tensor->rows, 8);
    strait_writer_uint(w, (uint64_t)tensor->cols, 8);
}

/* Builds the changed snapshot, with all values 0, and writes the original tensor to *tensor. */
static void make_changed(const struct strait_snapshot *from, const change *edit,
                         struct strait_snapshot *out, strait_snapshot_tensor *tensor) {
    static unsigned char data[1 << 20];
    strait_reader r = {from->data, from->bytes, 0};
    strait_writer w = {.at = data, .left = sizeof data};
    size_t values = 0;
    int n = 0;
    CHECK_OK(strait_snapshot_header_read_count(&r, &n));
    strait_writer_copy(&w, from->data, 4);
    const int n_after = n - edit->is_out + edit->is_twice;
    strait_writer_uint(&w, (uint64_t)n_after, 4);
    for (int i = 0; i < n; i++) {
        strait_snapshot_tensor each;
        CHECK_OK(strait_snapshot_header_read_tensor(&r, &each));
        const size_t row_bytes = each.bytes / (size_t)each.rows;
        if (i == edit->at) {
            *tensor = each;
            each.rows += edit->more_rows;
            each.is_state ^= edit->other_kind;
            if (edit->first != 0) each.name[0] = edit->first;
        }
        for (int k = i == edit->at ? edit->is_out : 0; k <= (i == edit->at && edit->is_twice);
             k++) {
            write_tensor(&w, &each);
            values += row_bytes * (size_t)each.rows;
        }
    }
    const size_t list_bytes = sizeof data - w.left;
    assert_true(list_bytes + values < sizeof data);
    memset(data + list_bytes, 0, values);
    strait_piece piece = {.stage = from->stage, .step = from->step, .total = list_bytes + values};
    while (piece.offset < piece.total) {
        piece.data = data + piece.offset;
        piece.bytes = piece.total - piece.offset < STRAIT_PIECE_BYTES ? piece.total - piece.offset
                                                                      : STRAIT_PIECE_BYTES;
        CHECK_OK(strait_snapshot_add_piece(out, &piece, piece.total));
        piece.offset += piece.bytes;
    }
}

/* A snapshot is compared with the tensors of its stage; the first difference is named. */
static void rejects_snapshots_of_other_stages(void **state) {
    (void)state;
    static const change changes[] = {
        {.at = 0, .is_out = 1, .error = "stage 1 at step 7: tensor \"%s\" (F32 %d x %d"},
        {.at = 5, .is_out = 1, .error = "tensor \"%s\" (F32 %d x %d"},
        {.at = 3, .is_twice = 1, .error = "tensor \"%s\" found where"},
        {.at = 3, .first = '~', .error = "tensor \"%s\" (F32 %d x %d"},
        {.at = 2, .more_rows = 1, .error = "tensor \"%s\" is F32"},
        {.at = 2, .other_kind = 1, .error = "tensor \"%s\" is F32 %d x %d, state, expected F32"},
    };
    struct strait_snapshot whole = {0};
    struct strait_snapshot after = {0};
    CHECK_OK(strait_snapshot_capture(runners[0], 7, 3, &whole));
    CHECK_OK(strait_snapshot_match(&whole, &plan));
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        struct strait_snapshot other = {0};
        strait_snapshot_tensor tensor;
        char expected[200];
        make_changed(&whole, &changes[i], &other, &tensor);
        (void)snprintf(expected, sizeof expected, changes[i].error, tensor.name, (int)tensor.rows,
                       (int)tensor.cols);
        CHECK_OK(
            strait_snapshot_check_finite(&other)); // it is well formed, and its values are finite
        CHECK_FAILS(strait_snapshot_match(&other, &plan), STRAIT_EDATA, expected);
        CHECK_FAILS(strait_snapshot_restore(&other, runners[0]), STRAIT_EDATA, expected);
        CHECK_OK(strait_snapshot_capture(runners[0], 7, 3, &after));
        assert_memory_equal(whole.data, after.data, whole.bytes);
        strait_snapshot_fini(&other);
    }
    strait_snapshot_fini(&whole);
    strait_snapshot_fini(&after);
}

/* Also after the last tensor. */
static void names_an_unexpected_tensor(void **state) {
    (void)state;
    struct strait_snapshot whole = {0};
    struct strait_snapshot other = {0};
    strait_snapshot_tensor last;
    CHECK_OK(strait_snapshot_capture(runners[0], 7, 3, &whole));
    const int n = (int)strait_get_u32(whole.data + 4);
    make_changed(&whole, &(change){.at = n - 1, .is_twice = 1}, &other, &last);
    CHECK_FAILS(strait_snapshot_match(&other, &plan), STRAIT_EDATA,
                "does not belong to this stage");
    assert_non_null(strstr(strait_err_detail(), last.name));
    strait_snapshot_fini(&other);
    make_changed(&whole, &(change){.at = n - 1, .is_out = 1}, &other, &last);
    CHECK_FAILS(strait_snapshot_match(&other, &plan), STRAIT_EDATA, "is missing");
    assert_non_null(strstr(strait_err_detail(), last.name));
    whole.stage = 0; // claims to be of the other stage
    CHECK_FAILS(strait_snapshot_match(&whole, &plan), STRAIT_EDATA,
                "snapshot of stage 0 at step 7: ");
    whole.stage = 2; // claims a stage that does not exist
    CHECK_FAILS(strait_snapshot_match(&whole, &plan), STRAIT_EDATA,
                "stage 2, but the run has 2 stages");
    strait_snapshot_fini(&other);
    strait_snapshot_fini(&whole);
}

/* The expected header equals that of a real stage, with every codec and optimizer. */
static void expects_the_tensors_of_a_real_stage(void **state) {
    (void)state;
    static const char *const codecs[] = {"none",    "int8",     "int4",  "topk",
                                         "lowrank", "subspace", "resbm", "strait"};
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++) {
        strait_run other = run;
        strait_run_plan made;
        (void)snprintf(other.link.codec.name, sizeof other.link.codec.name, "%s", codecs[i]);
        other.link.codec.variant[0] = '\0';
        other.link.codec.feedback = strcmp(codecs[i], "topk") == 0;
        other.link.codec.keep = 8;
        other.stages.count = 2 + (int64_t)(i % 2);
        other.model.layers = 3;
        other.train.optimizer = (int)(i % 3);
        CHECK_OK(strait_run_plan_init(&other, TINY_VOCAB, &made));
        for (int stage = 0; stage < made.n_stages; stage++) {
            struct strait_loader *loader = NULL;
            struct strait_runner *worker = NULL;
            struct strait_snapshot list = {0};
            struct strait_snapshot expected = {0};
            size_t whole = 0;
            CHECK_OK(strait_loader_open(&other, &loader));
            CHECK_OK(strait_loader_configure(loader, &made));
            CHECK_OK(strait_runner_open(&other, &made, &(strait_runner_place){stage, 0, 2}, loader,
                                        &worker));
            CHECK_OK(strait_snapshot_header(worker, &list, &whole));
            CHECK_OK(strait_snapshot_expected_header(&made, stage, &expected));
            assert_int_equal(list.bytes, expected.bytes);
            assert_memory_equal(list.data, expected.data, list.bytes);
            strait_snapshot_fini(&list);
            strait_snapshot_fini(&expected);
            strait_runner_close(&worker);
            strait_loader_close(&loader);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(restores_what_it_took),
        cmocka_unit_test(rejects_pieces_out_of_order),
        cmocka_unit_test(checkpoints_and_snapshots_have_the_same_tensors),
        cmocka_unit_test(finds_nonfinite_values),
        cmocka_unit_test(rejects_snapshots_of_other_stages),
        cmocka_unit_test(names_an_unexpected_tensor),
        cmocka_unit_test(expects_the_tensors_of_a_real_stage),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
