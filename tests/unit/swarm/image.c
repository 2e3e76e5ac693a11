/* Stages as images: taken, sent in pieces, put back; lists of strangers. */
#include "swarm/image.h"

#include "../pipeline/tiny_run.h"
#include "base/bytes.h"

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
    CHECK_FAILS(strait_image_put(&c, workers[1]), STRAIT_EDATA, "not of stage 1");
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

static void checkpoints_hold_what_images_hold(void **state) {
    (void)state;
    struct strait_image image = {0};
    struct strait_image list = {0};
    struct strait_image filled = {0};
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
    CHECK_FAILS(strait_image_fill(checkpoint, list.data, list.bytes, whole - 1, &filled),
                STRAIT_EPROTO, "no sense");
    CHECK_OK(strait_image_fill(checkpoint, list.data, list.bytes, whole, &filled));
    assert_int_equal(filled.bytes, image.bytes);
    assert_memory_equal(filled.data, image.data, image.bytes);
    for (size_t n = 0; n < list.bytes; n++) // cut anywhere
        assert_int_equal(strait_image_fill(checkpoint, list.data, n, whole, &filled),
                         STRAIT_EPROTO);
    list.data[9] = '/'; // a tensor that is not there
    assert_int_equal(strait_image_fill(checkpoint, list.data, list.bytes, whole, &filled),
                     STRAIT_EDATA);
    strait_put_u32(list.data + 4, UINT32_MAX);
    assert_int_equal(strait_image_fill(checkpoint, list.data, list.bytes, whole, &filled),
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_are_put_back),
        cmocka_unit_test(pieces_come_in_turn),
        cmocka_unit_test(checkpoints_hold_what_images_hold),
        cmocka_unit_test(what_is_no_number_is_found),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
