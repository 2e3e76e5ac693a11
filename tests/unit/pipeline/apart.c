/* What a conductor knows of its stages before it has any. */
#include "pipeline/apart.h"

#include "base/alloc.h"
#include "tiny_run.h"

/* Blocks with all that a block can have, nearly all of them on one stage. */
static void crowd(strait_run *run) {
    run->model.layers = 24;
    run->model.conv = 4;
    run->model.has_qkv_conv = run->model.has_anchors = run->model.has_value_tables = 1;
    run->model.has_qk_norm = run->model.has_qk_gain = 1;
    run->stages.count = 2;
    run->stages.split = (strait_run_counts){.n = 2, .items = {23, 1}};
}

static void there_is_room_for_every_norm(void **state) {
    (void)state;
    scratch folder = scratch_open();
    static struct strait_crew crew;
    static struct apart apart;
    crew.state = &apart;
    tiny_run(&folder, &crew.run);
    crowd(&crew.run);
    CHECK_OK(strait_recipe_make(&crew.run, TINY_VOCAB, &crew.recipe));
    CHECK_OK(strait_apart_make_room(&crew));
    int n_most = 0;
    for (int i = 0; i < 2; i++) {
        struct strait_feed *feed = NULL;
        struct strait_worker *worker = NULL;
        CHECK_OK(strait_feed_open(&crew.run, &feed));
        CHECK_OK(strait_feed_cut(feed, &crew.recipe));
        CHECK_OK(strait_worker_open(&crew.run, &crew.recipe, i, 1, feed, &worker));
        int n = 0;
        (void)strait_worker_squares(worker, &n);
        if (n > n_most) n_most = n;
        strait_worker_close(&worker);
        strait_feed_close(&feed);
    }
    assert_in_range(n_most, 23 * 13, INT32_MAX);
    assert_int_equal(apart.room, n_most);
    strait_alloc_free(apart.squares);
    strait_alloc_free(apart.joined);
    scratch_close(&folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(there_is_room_for_every_norm)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
