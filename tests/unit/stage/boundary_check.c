/* Descriptions of codecs that neighbours exchange: who may describe which boundary. */
#include "stage/boundary/boundary_check.h"

#include "../config/run_plan_rig.h"

static struct strait_msg_pool *pool;
static struct strait_boundary_checks checks;

/* The plan of three stages, seen from the middle one, which has a neighbour at each of its two
 * boundaries. */
static void open_middle_stage(void) {
    CHECK_OK(make("stages.count=3", "link.codec.name=int8", NULL));
    CHECK_OK(strait_msg_pool_open(&pool));
    strait_boundary_checks_init(&checks, &plan, 1);
}

/* Receives a description of `boundary` from stage `from`. Another seed makes it differ. */
static strait_err receive(int from, int boundary, uint64_t other_seed) {
    strait_boundary_check check;
    struct strait_msg *msg = NULL;
    CHECK_OK(strait_boundary_check_init(&plan, boundary, &check));
    check.seed += other_seed;
    CHECK_OK(strait_boundary_check_pack(pool, &check, &msg));
    const strait_err err = strait_boundary_checks_receive(&checks, from, msg);
    strait_msg_close(&msg);
    return err;
}

static void accepts_each_neighbours_own_boundary(void **state) {
    (void)state;
    open_middle_stage();
    CHECK_OK(receive(0, 0, 0));
    assert_true(strait_boundary_checks_is_done(&checks, 1, 0));
    assert_false(strait_boundary_checks_is_done(&checks, 1, 1));
    CHECK_OK(receive(2, 1, 0));
    assert_true(strait_boundary_checks_is_done(&checks, 1, 1));
    strait_msg_pool_close(&pool);
}

/* Neither as if it were described, nor as if its codec differed. */
static void rejects_a_boundary_that_the_sender_is_not_an_end_of(void **state) {
    (void)state;
    open_middle_stage();
    for (uint64_t seed = 0; seed < 2; seed++) {
        CHECK_FAILS(receive(0, 1, seed), STRAIT_EPROTO,
                    "stage 1: stage 0 described boundary 1, but joins this stage at boundary 0");
        CHECK_FAILS(receive(2, 0, seed), STRAIT_EPROTO,
                    "stage 1: stage 2 described boundary 0, but joins this stage at boundary 1");
        CHECK_FAILS(receive(-1, 0, seed), STRAIT_EPROTO, "not a neighbour");
        CHECK_FAILS(receive(3, 1, seed), STRAIT_EPROTO, "not a neighbour");
    }
    assert_false(strait_boundary_checks_is_done(&checks, 1, 0));
    assert_false(strait_boundary_checks_is_done(&checks, 0, 1));
    CHECK_OK(strait_boundary_checks_result(&checks));
    strait_msg_pool_close(&pool);
}

static void remembers_a_codec_that_differs(void **state) {
    (void)state;
    open_middle_stage();
    CHECK_FAILS(receive(2, 1, 1), STRAIT_EPROTO, "stage 1 and stage 2 have different codecs: seed");
    CHECK_FAILS(strait_boundary_checks_result(&checks), STRAIT_EPROTO, "different codecs: seed");
    strait_msg_pool_close(&pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_each_neighbours_own_boundary),
        cmocka_unit_test(rejects_a_boundary_that_the_sender_is_not_an_end_of),
        cmocka_unit_test(remembers_a_codec_that_differs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
