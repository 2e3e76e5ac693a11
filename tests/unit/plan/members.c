/* The simulation of replicas at homes, against pipelines whose times are known. */
#include "plan/members.h"

#include "rig.h"

enum {
    MICROBATCHES = 64
};

/* Three stages; the middle one has replicas at a tenth of the bandwidth of the others. */
typedef struct homes {
    strait_members_spec spec;
    strait_members_stage stages[3];
    strait_pipe_link links[2];
    strait_group_owners owners[3];
    double rates[32];
} homes;

static void make(homes *h, int n_replicas, double bps) {
    const strait_pipe_stage cost = {.forward_s = 1e-4, .input_s = 1e-4, .weights_s = 1e-4};
    *h = (homes){.spec = {.kind = STRAIT_SCHEDULE_WINDOW,
                          .n_stages = 3,
                          .stages = h->stages,
                          .links = h->links,
                          .owners = h->owners,
                          .groups = strait_groups_make(MICROBATCHES, MICROBATCHES, n_replicas),
                          .sums_pairwise = 1,
                          .up_bps = h->rates,
                          .down_bps = h->rates}};
    for (int i = 0; i < 3; i++) {
        const int n = i == 1 ? n_replicas : 1;
        h->stages[i] = (strait_members_stage){
            .cost = cost, .n_replicas = n, .window = MICROBATCHES, .gradient_bytes = 1e4};
        strait_groups_share(&h->spec.groups, n, NULL, &h->owners[i]);
        for (int k = 0; k < n; k++)
            h->rates[(i > 0) + (i > 1) * n_replicas + k] = i == 1 ? bps : 8 * bps;
    }
    for (int i = 0; i < 2; i++)
        h->links[i] = (strait_pipe_link){.forward_bytes = 1e5, .backward_bytes = 1e5};
}

static double seconds_of(const homes *h, strait_members_use *use) {
    double seconds = 0.0;
    CHECK_OK(strait_members_simulate(&h->spec, use, &seconds));
    return seconds;
}

/* With free wires it is the pipeline that plan/simulate.h simulates. */
static void one_replica_is_a_pipeline(void **state) {
    (void)state;
    static homes h;
    static rig r;
    const strait_pipe_stage cost = {.forward_s = 1e-3, .input_s = 2e-3, .weights_s = 1e-3};
    const strait_pipe_link link = {.forward_bytes = 1e5,
                                   .backward_bytes = 1e5,
                                   .forward_bps = 1e8,
                                   .backward_bps = 1e8,
                                   .delay_s = 0.01,
                                   .codec_s = 1e-4};
    make(&h, 1, 0.0);
    rig_make(&r, 3, MICROBATCHES, cost, link);
    for (int i = 0; i < 3; i++) {
        h.stages[i].cost = cost;
        h.stages[i].window = r.windows[i] = 9 - i;
        if (i < 2) h.links[i] = link;
    }
    const double expected = rig_run(&r, STRAIT_SCHEDULE_WINDOW, NULL).seconds;
    CHECK(fabs(seconds_of(&h, NULL) / expected - 1) < 0.03);
}

/* The narrow home sends and receives two messages per microbatch, and the acknowledgements of as
 * many. */
static void the_home_of_a_stage_limits_it(void **state) {
    (void)state;
    static homes h;
    strait_members_use use[3];
    make(&h, 1, 1e7);
    const double wire_s = 2 * MICROBATCHES * 1e5 * 8 / 1e7 * (1 + 66.0 / 3028);
    const double seconds = seconds_of(&h, use);
    CHECK(seconds > wire_s && seconds < 1.05 * wire_s);
    CHECK(use[1].up_s > 0.95 * wire_s && use[1].up_s < 1.01 * wire_s);
    CHECK_NEAR(use[1].down_s, 2 * MICROBATCHES * 1e5 * 8 / 1e7, 1e-9);
    CHECK_NEAR(use[1].busy_s, MICROBATCHES * 3e-4, 1e-9);
    CHECK(use[0].up_s < 0.1 * wire_s && use[0].reduced_s > 0.0);
}

static void replicas_share_a_narrow_stage(void **state) {
    (void)state;
    static homes h;
    double seconds[3];
    for (int i = 0; i < 3; i++) {
        make(&h, 1 << i, 1e7);
        seconds[i] = seconds_of(&h, NULL);
    }
    CHECK(seconds[0] / seconds[1] > 1.9 && seconds[0] / seconds[1] < 2.0);
    CHECK(seconds[0] / seconds[2] > 3.5 && seconds[0] / seconds[2] < 4.0);
    make(&h, 16, 1e7); // now the neighbours' homes are the limit
    h.rates[0] = 2e7;
    CHECK(seconds_of(&h, NULL) > MICROBATCHES * 1e5 * 8 / 2e7);
}

/* Sums cross the wire up and down after the last microbatch; three replicas of eight groups owe up
 * to two sums. */
static void sums_take_their_time(void **state) {
    (void)state;
    static homes h;
    strait_members_use use[8];
    make(&h, 4, 1e7);
    for (int i = 0; i < 3; i++)
        h.stages[i].gradient_bytes = 4e6;
    (void)seconds_of(&h, use);
    const double expected = 1.5 * 4e6 * 8 / 1e7; // out and back, of three quarters
    CHECK(fabs((use[1].reduced_s - use[1].computed_s) / expected - 1) < 0.05);
    CHECK(use[0].reduced_s <= use[0].computed_s); // a stage without replicas
    make(&h, 3, 1e7);
    h.spec.groups = strait_groups_make(MICROBATCHES, 8, 3);
    for (int i = 0; i < 3; i++)
        strait_groups_share(&h.spec.groups, h.stages[i].n_replicas, NULL, &h.owners[i]);
    CHECK(seconds_of(&h, use) > 0.0);
}

static void windows_grow_until_they_suffice(void **state) {
    (void)state;
    static homes h;
    make(&h, 4, 1e7);
    const double best = seconds_of(&h, NULL);
    for (int i = 0; i < 3; i++)
        h.stages[i].window = 1;
    const double narrow = seconds_of(&h, NULL);
    CHECK(narrow > 1.5 * best);
    CHECK_OK(strait_members_fit_windows(&h.spec, h.stages, NULL, 0.02));
    CHECK(seconds_of(&h, NULL) <= 1.02 * best);
    CHECK(h.stages[1].window < MICROBATCHES);
    const int caps[] = {2, 2, 2};
    for (int i = 0; i < 3; i++)
        h.stages[i].window = 1;
    CHECK_OK(strait_members_fit_windows(&h.spec, h.stages, caps, 0.02));
    CHECK(h.stages[0].window <= 2 && h.stages[1].window <= 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_replica_is_a_pipeline),
        cmocka_unit_test(the_home_of_a_stage_limits_it),
        cmocka_unit_test(replicas_share_a_narrow_stage),
        cmocka_unit_test(sums_take_their_time),
        cmocka_unit_test(windows_grow_until_they_suffice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
