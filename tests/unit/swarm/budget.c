/* The memory that serving a stage takes, computed before anything is allocated. */
#include "swarm/budget.h"

#include "../config/tiny_run.h"
#include "net/mesh/mesh.h"

static strait_run run;
static scratch folder;
static strait_run_plan plan;

static int set_up(void **state) {
    (void)state;
    folder = scratch_open();
    tiny_run(&folder, &run);
    run.stages.count = 2;
    CHECK_OK(strait_run_plan_init(&run, TINY_VOCAB, &plan));
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    scratch_close(&folder);
    return 0;
}

static strait_budget budget_of(int n_slots, int64_t valid_windows) {
    strait_budget budget;
    CHECK_OK(strait_budget_plan(&plan, 1, n_slots, valid_windows, &budget));
    return budget;
}

static void counts_every_id_of_a_validation(void **state) {
    (void)state;
    const strait_budget none = budget_of(1, 0), many = budget_of(1, 1 << 20);
    const double ids = 8.0 * (1 << 20) * (double)plan.shape.context;
    CHECK_NEAR(many.ids - none.ids, ids, 1.0);
    CHECK_NEAR(strait_budget_sum(&many) - strait_budget_sum(&none), ids, 1.0);
}

static void more_slots_take_more_memory(void **state) {
    (void)state;
    const strait_budget one = budget_of(1, 0), two = budget_of(2, 0);
    CHECK(two.stage > one.stage && two.snapshots == one.snapshots);
    CHECK(strait_budget_least_slots(&plan, 0) == (plan.n_microbatches > 1 ? 2 : 1));
    CHECK(strait_budget_least_slots(&plan, 1) == 1);
}

/* All snapshots that a worker can hold of stages of this size: three of its own, two of each
 * neighbour, one to restore from. */
static void counts_all_snapshots(void **state) {
    (void)state;
    strait_runner_memory memory;
    CHECK_OK(strait_runner_plan(&plan, 1, 1, &memory));
    CHECK_NEAR(budget_of(1, 0).snapshots, 8.0 * (double)(memory.weights + memory.optimizer), 1.0);
}

static void queues_hold_a_step_and_stay_bounded(void **state) {
    (void)state;
    CHECK(strait_budget_queue(&plan) >= (size_t)plan.n_microbatches * strait_budget_message(&plan));
    CHECK(budget_of(1, 0).messages == 3.0 * (double)strait_budget_queue(&plan));
    plan.n_microbatches = 1 << 20;
    CHECK(strait_budget_queue(&plan) == STRAIT_MESH_QUEUE);
}

/* Crossings are kept for as many steps as fit into a bounded part, and for none if one step is
 * larger: whatever the codec, a worker does not take more than this for them. */
static void kept_crossings_stay_bounded(void **state) {
    (void)state;
    strait_runner_memory memory;
    CHECK_OK(strait_runner_plan(&plan, 1, 1, &memory));
    const double step = (double)plan.n_microbatches *
                        (double)strait_codec_wire_bytes(&plan.codec, STRAIT_BACKWARD);
    CHECK(budget_of(1, 0).crossings == (double)memory.kept);
    CHECK_NEAR((double)memory.kept, (STRAIT_CROSSING_STEPS_MAX + 1) * step, 1.0);
    plan.n_microbatches = 2048; // 6 MB per step: one fits into half of 16 MB
    CHECK_OK(strait_runner_plan(&plan, 1, 1, &memory));
    CHECK(memory.kept > 0 && memory.kept <= (size_t)16 << 20);
    plan.n_microbatches = 1 << 20;
    CHECK_OK(strait_runner_plan(&plan, 1, 1, &memory));
    CHECK(memory.kept == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(counts_every_id_of_a_validation, set_up, tear_down),
        cmocka_unit_test_setup_teardown(more_slots_take_more_memory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(counts_all_snapshots, set_up, tear_down),
        cmocka_unit_test_setup_teardown(kept_crossings_stay_bounded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(queues_hold_a_step_and_stay_bounded, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
