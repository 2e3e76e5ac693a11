/* The memory for replies of stages, as planned before any stage exists. */
#include "stage/channel.h"

#include "../config/tiny_run.h"
#include "stage/runner.h"

/* Blocks with all that a block can have, nearly all of them on one stage. */
static void crowd(strait_run *run) {
    run->model.layers = 24;
    run->model.conv = 4;
    run->model.qkv_conv = run->model.anchors = run->model.value_tables = 1;
    run->model.qk_norm = run->model.qk_gain = 1;
    run->stages.count = 2;
    run->stages.split = (strait_option_ints){.n = 2, .items = {23, 1}};
}

static void has_capacity_for_every_norm(void **state) {
    (void)state;
    scratch folder = scratch_open();
    static strait_run run;
    static struct strait_stage_replies replies;
    strait_run_plan plan;
    tiny_run(&folder, &run);
    crowd(&run);
    CHECK_OK(strait_run_plan_init(&run, TINY_VOCAB, &plan));
    CHECK_OK(strait_stage_replies_init(&replies, &plan));
    int n_most = 0;
    for (int i = 0; i < 2; i++) {
        struct strait_loader *loader = NULL;
        struct strait_runner *worker = NULL;
        CHECK_OK(strait_loader_open(&run, &loader));
        CHECK_OK(strait_loader_configure(loader, &plan));
        CHECK_OK(strait_runner_open(&run, &plan, &(strait_runner_place){i, 0, 1}, loader, &worker));
        int n = 0;
        (void)strait_runner_squares(worker, &n);
        if (n > n_most) n_most = n;
        strait_runner_close(&worker);
        strait_loader_close(&loader);
    }
    assert_in_range(n_most, 23 * 13, INT32_MAX);
    assert_int_equal(replies.capacity, n_most);
    strait_stage_replies_fini(&replies);
    scratch_close(&folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(has_capacity_for_every_norm)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
