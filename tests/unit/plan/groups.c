/* Groups of microbatches, their shares, and the tree in which their sums are added. */
#include "plan/groups.h"

#include "rig.h"

#include <string.h>

/* The formula of a node, written out with its leaves: equal texts are equal bits. */
static void formula(int n_leaves, int level, int index, char *out, size_t size) {
    const int first = index << level;
    if (level == 0) {
        (void)snprintf(out, size, "%d", first);
        return;
    }
    char left[1024], right[1024];
    formula(n_leaves, level - 1, 2 * index, left, sizeof left);
    if ((2 * index + 1) << (level - 1) >= n_leaves) {
        (void)snprintf(out, size, "%s", left);
        return;
    }
    formula(n_leaves, level - 1, 2 * index + 1, right, sizeof right);
    (void)snprintf(out, size, "(%.500s+%.500s)", left, right);
}

struct sum {
    struct strait_pairwise set;
    char texts[STRAIT_PAIRWISE_LEAVES][1024];
    int n_slots;
};

/* Adds a part as a reduction does: whatever sibling is there already. */
static void add(struct sum *sum, int n, strait_pairwise_node node, const char *text) {
    char now[1024], next[2100];
    (void)snprintf(now, sizeof now, "%s", text);
    while (!strait_pairwise_is_root(n, node)) {
        const strait_pairwise_node sibling = strait_pairwise_sibling(node);
        const int slot = strait_pairwise_find(&sum->set, sibling);
        if (slot < 0) break;
        const int is_left = sibling.index < node.index;
        (void)snprintf(next, sizeof next, "(%s+%s)", is_left ? sum->texts[slot] : now,
                       is_left ? now : sum->texts[slot]);
        (void)snprintf(now, sizeof now, "%.1000s", next);
        strait_pairwise_drop(&sum->set, sibling);
        node = strait_pairwise_sum(n, node);
    }
    (void)snprintf(sum->texts[sum->n_slots], sizeof sum->texts[0], "%s", now);
    strait_pairwise_hold(&sum->set, node, sum->n_slots++);
}

static void any_order_gives_the_same_formula(void **state) {
    (void)state;
    for (int n = 1; n <= 13; n++) {
        char wanted[1024];
        formula(n, 4, 0, wanted, sizeof wanted);
        for (int stride = 1; stride <= 7; stride += 2) {
            if (n % stride == 0 && stride > 1) continue;
            struct sum sum = {0};
            for (int i = 0; i < n; i++) {
                char leaf[16];
                (void)snprintf(leaf, sizeof leaf, "%d", i * stride % n);
                add(&sum, n, strait_pairwise_leaf(n, i * stride % n), leaf);
            }
            assert_string_equal(sum.texts[sum.n_slots - 1], wanted);
        }
    }
}

static void parts_of_replicas_give_the_same_formula(void **state) {
    (void)state;
    const double speeds[][3] = {{1, 1, 1}, {5, 1, 1}, {1, 9, 2}};
    for (int n = 3; n <= 12; n++)
        for (int s = 0; s < 3; s++) {
            const strait_groups groups = strait_groups_make(n, n, 3);
            strait_group_owners owners;
            struct sum all = {0};
            char wanted[1024], text[1024];
            strait_groups_share(&groups, 3, speeds[s], &owners);
            for (int replica = 2; replica >= 0; replica--) {
                unsigned char is_mine[STRAIT_GROUPS_MAX];
                strait_pairwise_node parts[STRAIT_GROUPS_MAX];
                for (int i = 0; i < n; i++)
                    is_mine[i] = owners.replica[i] == replica;
                const int n_parts = strait_pairwise_parts(n, is_mine, parts);
                CHECK(n_parts >= 1);
                for (int i = 0; i < n_parts; i++) {
                    CHECK(strait_pairwise_is_valid(n, parts[i]));
                    formula(n, parts[i].level, parts[i].index, text, sizeof text);
                    add(&all, n, parts[i], text);
                }
            }
            formula(n, 4, 0, wanted, sizeof wanted);
            assert_string_equal(all.texts[all.n_slots - 1], wanted);
        }
}

static void every_microbatch_belongs_to_one_group_and_one_replica(void **state) {
    (void)state;
    for (int m = 1; m <= 40; m += 3)
        for (int replicas = 1; replicas <= 4 && replicas <= m; replicas++) {
            const strait_groups groups = strait_groups_make(m, 8, replicas);
            strait_group_owners owners;
            int seen[64] = {0};
            CHECK(groups.n_groups == (m < 8 ? m : 8));
            if (replicas > groups.n_groups) continue;
            strait_groups_share(&groups, replicas, NULL, &owners);
            for (int r = 0; r < replicas; r++) {
                int list[64];
                const int n = strait_groups_list(&groups, &owners, r, list);
                CHECK(n >= 1);
                for (int i = 0; i < n; i++)
                    seen[list[i]]++;
            }
            for (int i = 0; i < m; i++) {
                const int group = strait_groups_of(&groups, i);
                CHECK(seen[i] == 1);
                CHECK(i >= strait_groups_first(&groups, group));
                CHECK(i < strait_groups_first(&groups, group + 1));
            }
        }
}

static void orders_and_shares_match_those_by_hand(void **state) {
    (void)state;
    int order[STRAIT_GROUPS_MAX];
    static const int one[] = {0, 1, 2, 3, 4, 5, 6, 7}, two[] = {0, 4, 1, 5, 2, 6, 3, 7},
                     four[] = {0, 4, 2, 6, 1, 5, 3, 7};
    strait_groups groups = strait_groups_make(8, 8, 1);
    strait_groups_order(&groups, order);
    assert_memory_equal(order, one, sizeof one);
    groups = strait_groups_make(8, 8, 2);
    strait_groups_order(&groups, order);
    assert_memory_equal(order, two, sizeof two);
    groups = strait_groups_make(8, 8, 3);
    strait_groups_order(&groups, order);
    assert_memory_equal(order, four, sizeof four);
    strait_group_owners owners;
    static const unsigned char thirds[] = {0, 0, 0, 1, 1, 2, 2, 2},
                               fast[] = {0, 1, 1, 1, 1, 1, 1, 2};
    strait_groups_share(&groups, 3, NULL, &owners);
    assert_memory_equal(owners.replica, thirds, sizeof thirds);
    const double speeds[] = {1, 100, 1}, broken[] = {1, 0, 1};
    strait_groups_share(&groups, 3, speeds, &owners);
    assert_memory_equal(owners.replica, fast, sizeof fast);
    strait_groups_share(&groups, 3, broken, &owners);
    assert_memory_equal(owners.replica, thirds, sizeof thirds);
}

/* Stages of two and of three replicas: in every turn of the streams each has the same number of
 * groups, so that none waits for one that has more to do. */
static void replicas_of_uneven_stages_take_turns(void **state) {
    (void)state;
    const strait_groups groups = strait_groups_make(48, 48, 3);
    int order[STRAIT_GROUPS_MAX];
    CHECK(groups.n_streams == 6);
    strait_groups_order(&groups, order);
    CHECK(order[1] == 24 && order[2] == 8 && order[6] == 1);
    for (int n_replicas = 2; n_replicas <= 3; n_replicas++) {
        strait_group_owners owners;
        strait_groups_share(&groups, n_replicas, NULL, &owners);
        for (int turn = 0; turn < 8; turn++) {
            int n[3] = {0};
            for (int i = 0; i < 6; i++)
                n[owners.replica[order[6 * turn + i]]]++;
            for (int r = 0; r < n_replicas; r++)
                CHECK(n[r] == 6 / n_replicas);
        }
    }
    CHECK(strait_groups_make(64, 64, 3).n_streams == 4); // not shared evenly anyway
}

static void counts_the_sums_that_wait(void **state) {
    (void)state;
    const strait_groups one = strait_groups_make(8, 8, 1), two = strait_groups_make(8, 8, 2);
    const strait_groups single = strait_groups_make(1, 8, 1), odd = strait_groups_make(5, 8, 1);
    CHECK(strait_groups_buffers(&single, 1) == 0);
    CHECK(strait_groups_buffers(&one, 1) == 3); // log2 of the groups
    CHECK(strait_groups_buffers(&odd, 1) == 2);
    CHECK(strait_groups_buffers(&two, 1) == 4);
    CHECK(strait_groups_buffers(&two, 2) == 4);
}

static void rejects_nodes_outside_the_tree(void **state) {
    (void)state;
    static const strait_pairwise_node bad[] = {{-1, 0}, {0, -1}, {0, 5}, {0, 4},
                                               {1, 2},  {3, 1},  {7, 0}};
    static const strait_pairwise_node good[] = {{0, 0}, {0, 3}, {1, 1}, {2, 0}, {2, 1}, {3, 0}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(!strait_pairwise_is_valid(5, bad[i]));
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        CHECK(strait_pairwise_is_valid(5, good[i]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order_gives_the_same_formula),
        cmocka_unit_test(parts_of_replicas_give_the_same_formula),
        cmocka_unit_test(every_microbatch_belongs_to_one_group_and_one_replica),
        cmocka_unit_test(orders_and_shares_match_those_by_hand),
        cmocka_unit_test(replicas_of_uneven_stages_take_turns),
        cmocka_unit_test(counts_the_sums_that_wait),
        cmocka_unit_test(rejects_nodes_outside_the_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
