/* Ranks and stages: the order of nodes, and stages that share a rank. */
#include "plan/place.h"

#include "check.h"

/* Two nodes, as --map-by node numbers their ranks. */
static const strait_place_rank two_nodes[] = {{0, 0}, {1, 0}, {0, 1}, {1, 1}};

static void expect(strait_place_rule rule, const strait_place_rank *ranks, int n_ranks,
                   int n_stages, const int *expected) {
    int out[16];
    strait_place(rule, ranks, n_ranks, n_stages, out);
    for (int i = 0; i < n_stages; i++)
        CHECK(out[i] == expected[i]);
}

static void packs_neighbours_onto_one_node(void **state) {
    (void)state;
    expect(STRAIT_PLACE_PACK, two_nodes, 4, 4, (const int[]){0, 2, 1, 3});
}

static void spreads_neighbours_over_nodes(void **state) {
    (void)state;
    const strait_place_rank by_slot[] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}};
    expect(STRAIT_PLACE_SPREAD, by_slot, 4, 4, (const int[]){0, 2, 1, 3});
    const strait_place_rank uneven[] = {{0, 0}, {0, 1}, {0, 2}, {1, 0}};
    expect(STRAIT_PLACE_SPREAD, uneven, 4, 4, (const int[]){0, 3, 1, 2});
}

static void lets_consecutive_stages_share_a_rank(void **state) {
    (void)state;
    const strait_place_rank one_node[] = {{0, 0}, {0, 1}, {0, 2}};
    expect(STRAIT_PLACE_PACK, one_node, 3, 8, (const int[]){0, 0, 0, 1, 1, 1, 2, 2});
    expect(STRAIT_PLACE_PACK, one_node, 1, 3, (const int[]){0, 0, 0});
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(packs_neighbours_onto_one_node),
                                       cmocka_unit_test(spreads_neighbours_over_nodes),
                                       cmocka_unit_test(lets_consecutive_stages_share_a_rank)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
