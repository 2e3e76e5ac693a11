/* Descriptions of codecs that neighbours exchange: who may describe which boundary. */
#include "stage/boundary/boundary_check.h"

#include "../config/run_plan_rig.h"

static struct strait_msg_pool *pool;
static struct strait_boundary_checks checks;
static strait_stage_links links; // of one replica before this stage and two behind it

/* The plan of three stages, seen from the middle one, which has a neighbour at each of its two
 * boundaries. */
static void open_middle_stage(void) {
    CHECK_OK(make("stages.count=3", "link.codec.name=int8", NULL));
    CHECK_OK(strait_msg_pool_open(&pool));
    strait_boundary_checks_init(&checks, &plan, 1);
    strait_stage_links_init(&links, NULL);
    strait_stage_links_set(&links, STRAIT_SIDE_PREV, 0, 10);
    strait_stage_links_set(&links, STRAIT_SIDE_NEXT, 0, 20);
    strait_stage_links_set(&links, STRAIT_SIDE_NEXT, 1, 21);
    strait_stage_links_set(&links, STRAIT_SIDE_SAME, 1, 30);
}

/* Receives a description of `boundary` from a peer. Another seed makes it differ. */
static strait_err receive(int peer, int boundary, uint64_t other_seed) {
    strait_boundary_check check;
    struct strait_msg *msg = NULL;
    CHECK_OK(strait_boundary_check_init(&plan, boundary, &check));
    check.seed += other_seed;
    CHECK_OK(strait_boundary_check_pack(pool, &check, &msg));
    msg->peer = peer;
    const strait_err err = strait_boundary_checks_receive(&checks, &links, msg);
    strait_msg_close(&msg);
    return err;
}

static void accepts_each_neighbours_own_boundary(void **state) {
    (void)state;
    open_middle_stage();
    int side = 0;
    CHECK_FAILS(strait_boundary_checks_require(&checks, &links, &side), STRAIT_EPROTO,
                "stage 1: stage 0 did not describe its codec");
    assert_int_equal(side, -1);
    CHECK_OK(receive(10, 0, 0));
    CHECK_FAILS(strait_boundary_checks_require(&checks, &links, &side), STRAIT_EPROTO,
                "stage 1: stage 2 did not describe its codec");
    assert_int_equal(side, 1);
    CHECK_OK(receive(20, 1, 0));
    CHECK_OK(receive(21, 1, 0));
    CHECK_OK(strait_boundary_checks_require(&checks, &links, &side));
    strait_msg_pool_close(&pool);
}

/* One replica that describes its codec twice does not stand for the other. */
static void counts_senders_not_descriptions(void **state) {
    (void)state;
    open_middle_stage();
    int side = 0;
    CHECK_OK(receive(10, 0, 0));
    for (int i = 0; i < 3; i++)
        CHECK_OK(receive(20, 1, 0));
    CHECK_FAILS(strait_boundary_checks_require(&checks, &links, &side), STRAIT_EPROTO,
                "stage 2 did not describe");
    CHECK_OK(receive(21, 1, 0));
    CHECK_OK(strait_boundary_checks_require(&checks, &links, &side));
    strait_msg_pool_close(&pool);
}

/* Neither as if it were described, nor as if its codec differed. */
static void rejects_a_boundary_that_the_sender_is_not_an_end_of(void **state) {
    (void)state;
    open_middle_stage();
    for (uint64_t seed = 0; seed < 2; seed++) {
        CHECK_FAILS(receive(10, 1, seed), STRAIT_EPROTO,
                    "stage 1: stage 0 described boundary 1, but joins this stage at boundary 0");
        CHECK_FAILS(receive(20, 0, seed), STRAIT_EPROTO,
                    "stage 1: stage 2 described boundary 0, but joins this stage at boundary 1");
        CHECK_FAILS(receive(-1, 0, seed), STRAIT_EPROTO, "not a neighbour");
        CHECK_FAILS(receive(30, 1, seed), STRAIT_EPROTO, "not a neighbour");
    }
    int side = 0;
    CHECK_FAILS(strait_boundary_checks_require(&checks, &links, &side), STRAIT_EPROTO, "stage 0");
    CHECK_OK(strait_boundary_checks_result(&checks));
    strait_msg_pool_close(&pool);
}

static void remembers_a_codec_that_differs(void **state) {
    (void)state;
    open_middle_stage();
    CHECK_FAILS(receive(20, 1, 1), STRAIT_EPROTO,
                "stage 1 and stage 2 have different codecs: seed");
    CHECK_FAILS(strait_boundary_checks_result(&checks), STRAIT_EPROTO, "different codecs: seed");
    strait_msg_pool_close(&pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_each_neighbours_own_boundary),
        cmocka_unit_test(counts_senders_not_descriptions),
        cmocka_unit_test(rejects_a_boundary_that_the_sender_is_not_an_end_of),
        cmocka_unit_test(remembers_a_codec_that_differs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
