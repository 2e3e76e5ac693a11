/* Stages as images: taken, sent in pieces, put back; lists of strangers. */
#include "swarm/image.h"

#include "../pipeline/tiny_run.h"
#include "base/alloc.h"
#include "swarm/gift.h"
#include "swarm/image_list.h"

static strait_run run;
static scratch folder;
static strait_recipe recipe;
static struct strait_feed *feeds[2];
static struct strait_worker *workers[2]; // of the same stage, in different states

static int set_up(void **state) {
    (void)state;
    folder = scratch_open();
    tiny_run(&folder, &run);
    run.stages.count = 2;
    CHECK_OK(strait_recipe_make(&run, TINY_VOCAB, &recipe));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(strait_feed_open(&run, &feeds[i]));
        CHECK_OK(strait_feed_cut(feeds[i], &recipe));
        CHECK_OK(strait_worker_open(&run, &recipe, 1, 1, feeds[i], &workers[i]));
        CHECK_OK(strait_worker_draw(workers[i], (uint64_t)(10 + i)));
    }
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        strait_worker_close(&workers[i]);
        strait_feed_close(&feeds[i]);
    }
    scratch_close(&folder);
    return 0;
}

static void images_are_put_back(void **state) {
    (void)state;
    struct strait_image a = {0};
    struct strait_image b = {0};
    struct strait_image c = {0};
    CHECK_OK(strait_image_take(workers[0], 7, 3, &a));
    CHECK_OK(strait_image_take(workers[1], 7, 3, &b));
    assert_int_equal(a.bytes, b.bytes);
    assert_true(memcmp(a.data, b.data, a.bytes) != 0);
    for (size_t at = 0; at < a.bytes;) { // through pieces
        strait_piece piece;
        strait_image_next(&a, &at, &piece);
        assert_false(strait_image_is_whole(&c));
        CHECK_OK(strait_image_add(&c, &piece, a.bytes));
    }
    assert_true(strait_image_is_whole(&c));
    CHECK_OK(strait_image_put(&c, workers[1]));
    CHECK_OK(strait_image_take(workers[1], 7, 3, &b));
    assert_memory_equal(a.data, b.data, a.bytes);
    c.data[9]++; // another name
    CHECK_FAILS(strait_image_put(&c, workers[1]), STRAIT_EDATA, "is missing");
    CHECK_OK(strait_image_take(workers[1], 7, 3, &b));
    assert_memory_equal(a.data, b.data, a.bytes);
    strait_image_fini(&a);
    strait_image_fini(&b);
    strait_image_fini(&c);
}

static void pieces_come_in_turn(void **state) {
    (void)state;
    struct strait_image image = {0};
    unsigned char data[16] = {0};
    strait_piece piece = {.stage = 1, .step = 2, .total = 32, .data = data, .bytes = 16};
    CHECK_FAILS(strait_image_add(&image, &piece, 31), STRAIT_EPROTO, "expected at most 31");
    CHECK_OK(strait_image_add(&image, &piece, 32));
    piece.offset = 8;
    CHECK_FAILS(strait_image_add(&image, &piece, 32), STRAIT_EPROTO, "out of turn");
    piece.offset = 16;
    piece.step = 3;
    CHECK_FAILS(strait_image_add(&image, &piece, 32), STRAIT_EPROTO, "out of turn");
    piece.step = 2;
    CHECK_OK(strait_image_add(&image, &piece, 32));
    assert_true(strait_image_is_whole(&image));
    assert_int_equal(strait_image_add(&image, &piece, 32), STRAIT_EPROTO);
    strait_image_fini(&image);
}

/* An image that is to be given takes no room but that of its list. */
static void open_gift(struct strait_gift *gift, const struct strait_checkpoint *checkpoint,
                      const struct strait_image *list, size_t whole) {
    const int64_t before = strait_alloc_count();
    CHECK_OK(strait_gift_init(gift, checkpoint, list->data, list->bytes, whole));
    assert_int_equal(strait_alloc_count(), before + 1);
    assert_int_equal(gift->bytes, whole);
    gift->stage = 1;
    gift->step = 7;
    gift->born = 9;
}

static void checkpoints_hold_what_images_hold(void **state) {
    (void)state;
    struct strait_image image = {0};
    struct strait_image list = {0};
    struct strait_image filled = {0};
    struct strait_gift gift = {0};
    struct strait_checkpoint *checkpoint = NULL;
    size_t whole = 0;
    CHECK_OK(strait_image_take(workers[0], 7, 3, &image));
    CHECK_OK(strait_checkpoint_prepare(folder.path));
    CHECK_OK(strait_checkpoint_begin(folder.path, 7));
    CHECK_OK(strait_image_write(&image, folder.path, 7));
    const strait_checkpoint_part parts[] = {{.stage = 1}, {.stage = 1, .is_state = 1}};
    const strait_checkpoint_plan plan = {
        .step = 7, .tokenizer = "", .parts = parts, .n_parts = 2, .keep = 1};
    CHECK_OK(strait_checkpoint_commit(folder.path, &plan));
    CHECK_OK(strait_checkpoint_open(folder.path, STRAIT_CHECKPOINT_NEWEST, &checkpoint));
    CHECK_OK(strait_image_list(workers[0], &list, &whole));
    assert_int_equal(whole, image.bytes);
    CHECK_FAILS(strait_gift_init(&gift, checkpoint, list.data, list.bytes, whole - 1),
                STRAIT_EPROTO, "no sense");
    open_gift(&gift, checkpoint, &list, whole);
    while (!strait_gift_is_over(&gift)) {
        strait_piece piece;
        const int64_t before = strait_alloc_count();
        CHECK_OK(strait_gift_next(&gift, &piece));
        assert_int_equal(strait_alloc_count(), before);
        CHECK_OK(strait_image_add(&filled, &piece, whole));
    }
    strait_gift_fini(&gift);
    assert_true(strait_image_is_whole(&filled));
    assert_true(filled.stage == 1 && filled.step == 7 && filled.born == 9);
    assert_int_equal(filled.bytes, image.bytes);
    assert_memory_equal(filled.data, image.data, image.bytes);
    for (size_t n = 0; n < list.bytes; n++) // cut anywhere
        assert_int_equal(strait_gift_init(&gift, checkpoint, list.data, n, whole), STRAIT_EPROTO);
    list.data[9] = '/'; // a tensor that is not there
    assert_int_equal(strait_gift_init(&gift, checkpoint, list.data, list.bytes, whole),
                     STRAIT_EDATA);
    strait_put_u32(list.data + 4, UINT32_MAX);
    assert_int_equal(strait_gift_init(&gift, checkpoint, list.data, list.bytes, whole),
                     STRAIT_EPROTO);
    image.bytes--;
    image.filled--;
    assert_int_equal(strait_image_write(&image, folder.path, 8), STRAIT_EPROTO);
    strait_checkpoint_close(&checkpoint);
    strait_image_fini(&image);
    strait_image_fini(&list);
    strait_image_fini(&filled);
}

static void what_is_no_number_is_found(void **state) {
    (void)state;
    struct strait_image image = {0};
    CHECK_FAILS(strait_image_check(&image), STRAIT_EPROTO, "no sense");
    CHECK_OK(strait_image_take(workers[0], 7, 3, &image));
    CHECK_OK(strait_image_check(&image));
    unsigned char *last = image.data + image.bytes - 4;
    static const uint32_t bad[] = {0x7fc00000, 0xff800000, 0x7f800001, 0xffffffff};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        strait_put_u32(last, bad[i]);
        CHECK_FAILS(strait_image_check(&image), STRAIT_ENONFINITE, "stage 1 at step 7: ");
    }
    strait_put_u32(last, 0xff7fffff); // the largest that is one
    CHECK_OK(strait_image_check(&image));
    image.bytes--;
    image.filled--;
    CHECK_FAILS(strait_image_check(&image), STRAIT_EPROTO, "no sense");
    strait_image_fini(&image);
}

/* ---- images of other stages ---- */

typedef struct change {
    int at;                    // a tensor, from 0
    int is_out, is_twice;      // it is left out; it stands there twice
    int more_rows, other_kind; // it has one more row; it is state
    char first;                // its name begins so; 0: as ever
    const char *words;         // of the error, with the tensor's name
} change;

static void put_row(strait_writer *w, const strait_image_row *row) {
    strait_writer_uint(w, strlen(row->name), 1);
    strait_writer_copy(w, row->name, strlen(row->name));
    strait_writer_uint(w, (uint64_t)row->dtype, 1);
    strait_writer_uint(w, (uint64_t)row->is_state, 1);
    strait_writer_uint(w, (uint64_t)row->rows, 8);
    strait_writer_uint(w, (uint64_t)row->cols, 8);
}

/* The image changed so, its values 0; the tensor as it was in *row. */
static void make_changed(const struct strait_image *from, const change *how,
                         struct strait_image *out, strait_image_row *row) {
    static unsigned char data[1 << 20];
    strait_reader r = {from->data, from->bytes, 0};
    strait_writer w = {.at = data, .left = sizeof data};
    size_t values = 0;
    int n = 0;
    CHECK_OK(strait_image_list_head(&r, &n));
    strait_writer_copy(&w, from->data, 4);
    const int n_after = n - how->is_out + how->is_twice;
    strait_writer_uint(&w, (uint64_t)n_after, 4);
    for (int i = 0; i < n; i++) {
        strait_image_row each;
        CHECK_OK(strait_image_list_row(&r, &each));
        const size_t row_bytes = each.bytes / (size_t)each.rows;
        if (i == how->at) {
            *row = each;
            each.rows += how->more_rows;
            each.is_state ^= how->other_kind;
            if (how->first != 0) each.name[0] = how->first;
        }
        for (int k = i == how->at ? how->is_out : 0; k <= (i == how->at && how->is_twice); k++) {
            put_row(&w, &each);
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
        CHECK_OK(strait_image_add(out, &piece, piece.total));
        piece.offset += piece.bytes;
    }
}

/* An image is held against what its stage has, tensor by tensor; one that is not that is refused,
 * and the worker is as it was. */
static void images_of_other_stages_are_refused(void **state) {
    (void)state;
    static const change changes[] = {
        {.at = 0, .is_out = 1, .words = "stage 1 at step 7: tensor \"%s\" (F32 %d x %d"},
        {.at = 5, .is_out = 1, .words = "tensor \"%s\" (F32 %d x %d"},
        {.at = 3, .is_twice = 1, .words = "tensor \"%s\" stands where"},
        {.at = 3, .first = '~', .words = "tensor \"%s\" (F32 %d x %d"},
        {.at = 2, .more_rows = 1, .words = "tensor \"%s\" is F32"},
        {.at = 2, .other_kind = 1, .words = "tensor \"%s\" is F32 %d x %d, state, expected F32"},
    };
    struct strait_image whole = {0};
    struct strait_image after = {0};
    CHECK_OK(strait_image_take(workers[0], 7, 3, &whole));
    CHECK_OK(strait_image_match(&whole, &recipe));
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        struct strait_image other = {0};
        strait_image_row row;
        char words[200];
        make_changed(&whole, &changes[i], &other, &row);
        (void)snprintf(words, sizeof words, changes[i].words, row.name, (int)row.rows,
                       (int)row.cols);
        CHECK_OK(strait_image_check(&other)); // it makes sense, and its values are numbers
        CHECK_FAILS(strait_image_match(&other, &recipe), STRAIT_EDATA, words);
        CHECK_FAILS(strait_image_put(&other, workers[0]), STRAIT_EDATA, words);
        CHECK_OK(strait_image_take(workers[0], 7, 3, &after));
        assert_memory_equal(whole.data, after.data, whole.bytes);
        strait_image_fini(&other);
    }
    strait_image_fini(&whole);
    strait_image_fini(&after);
}

/* One behind the last, too. */
static void a_tensor_too_many_is_named(void **state) {
    (void)state;
    struct strait_image whole = {0};
    struct strait_image other = {0};
    strait_image_row last;
    CHECK_OK(strait_image_take(workers[0], 7, 3, &whole));
    const int n = (int)strait_get_u32(whole.data + 4);
    make_changed(&whole, &(change){.at = n - 1, .is_twice = 1}, &other, &last);
    CHECK_FAILS(strait_image_match(&other, &recipe), STRAIT_EDATA, "one that this stage does not");
    assert_non_null(strstr(strait_err_detail(), last.name));
    strait_image_fini(&other);
    make_changed(&whole, &(change){.at = n - 1, .is_out = 1}, &other, &last);
    CHECK_FAILS(strait_image_match(&other, &recipe), STRAIT_EDATA, "is missing");
    assert_non_null(strstr(strait_err_detail(), last.name));
    whole.stage = 0; // as if it were of the other stage
    CHECK_FAILS(strait_image_match(&whole, &recipe), STRAIT_EDATA, "image of stage 0 at step 7: ");
    whole.stage = 2; // as if there were one more
    CHECK_FAILS(strait_image_match(&whole, &recipe), STRAIT_EDATA, "stage 2, of 2 stages");
    strait_image_fini(&other);
    strait_image_fini(&whole);
}

/* What is expected of a stage is what its worker has, with every codec and optimizer. */
static void what_is_expected_is_what_there_is(void **state) {
    (void)state;
    static const char *const codecs[] = {"none",    "int8",     "int4",  "topk",
                                         "lowrank", "subspace", "resbm", "strait"};
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++) {
        strait_run other = run;
        strait_recipe made;
        (void)snprintf(other.link.codec.name, sizeof other.link.codec.name, "%s", codecs[i]);
        other.link.codec.variant[0] = '\0';
        other.link.codec.has_feedback = strcmp(codecs[i], "topk") == 0;
        other.link.codec.keep = 8;
        other.stages.count = 2 + (int64_t)(i % 2);
        other.model.layers = 3;
        other.train.optimizer = (strait_run_optimizer)(i % 3);
        CHECK_OK(strait_recipe_make(&other, TINY_VOCAB, &made));
        for (int stage = 0; stage < made.n_stages; stage++) {
            struct strait_feed *feed = NULL;
            struct strait_worker *worker = NULL;
            struct strait_image list = {0};
            struct strait_image expected = {0};
            size_t whole = 0;
            CHECK_OK(strait_feed_open(&other, &feed));
            CHECK_OK(strait_feed_cut(feed, &made));
            CHECK_OK(strait_worker_open(&other, &made, stage, 2, feed, &worker));
            CHECK_OK(strait_image_list(worker, &list, &whole));
            CHECK_OK(strait_image_expect(&made, stage, &expected));
            assert_int_equal(list.bytes, expected.bytes);
            assert_memory_equal(list.data, expected.data, list.bytes);
            strait_image_fini(&list);
            strait_image_fini(&expected);
            strait_worker_close(&worker);
            strait_feed_close(&feed);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_are_put_back),
        cmocka_unit_test(pieces_come_in_turn),
        cmocka_unit_test(checkpoints_hold_what_images_hold),
        cmocka_unit_test(what_is_no_number_is_found),
        cmocka_unit_test(images_of_other_stages_are_refused),
        cmocka_unit_test(a_tensor_too_many_is_named),
        cmocka_unit_test(what_is_expected_is_what_there_is),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
