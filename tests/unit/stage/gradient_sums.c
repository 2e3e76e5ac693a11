/* Sums of gradients over groups, against the tree written out in a loop. */
#include "stage/replicas/gradient_sums.h"

#include "check.h"

#include <stdlib.h>

enum {
    COLS = 5,
    PARAMS = 2
};

static float value_of(int param, int group, int i) {
    return (float)((group * 7919 + param * 104729 + i * 31) % 1009) / 977.0f *
           (group % 2 ? 1e-3f : 1e3f);
}

/* The sum over leaves [first, first + 2^level) that exist, left child first. */
static float tree(int n, int level, int index, int param, int i) {
    if (level == 0) return value_of(param, index, i);
    const float left = tree(n, level - 1, 2 * index, param, i);
    if ((2 * index + 1) << (level - 1) >= n) return left;
    return left + tree(n, level - 1, 2 * index + 1, param, i);
}

struct rig {
    struct strait_backend *backend;
    struct strait_stream stream;
    struct strait_gradient_sums sums;
    strait_param params[PARAMS];
    float grads[PARAMS][COLS];
};

static void open_rig(struct rig *rig, const strait_groups *groups, int n_buffers) {
    CHECK_OK(
        strait_backend_open((strait_backend_spec){.name = "cpu", .n_threads = 1}, &rig->backend));
    CHECK_OK(rig->backend->ops->stream_open(rig->backend, &rig->stream));
    for (int p = 0; p < PARAMS; p++)
        rig->params[p] = (strait_param){.value = {NULL, STRAIT_F32, 1, COLS},
                                        .grad = {rig->grads[p], STRAIT_F32, 1, COLS},
                                        .is_deferred = p};
    CHECK_OK(strait_gradient_sums_init(&rig->sums, groups->n_groups, n_buffers, rig->params, PARAMS,
                                       rig->backend));
}

static void close_rig(struct rig *rig) {
    strait_gradient_sums_fini(&rig->sums);
    rig->backend->ops->stream_close(&rig->stream);
    strait_backend_close(&rig->backend);
}

static void compute(struct rig *rig, int p, int group, int is_last) {
    for (int i = 0; i < COLS; i++)
        rig->grads[p][i] = value_of(p, group, i);
    CHECK_OK(strait_gradient_sums_add(&rig->sums, &rig->stream, p, group));
    if (!is_last) CHECK_OK(strait_gradient_sums_put_aside(&rig->sums, &rig->stream, p));
}

/* The deferred parameter is up to two groups behind the other. */
static void sums_have_the_bits_of_the_tree(void **state) {
    (void)state;
    for (int n = 1; n <= 9; n++)
        for (int replicas_max = 1; replicas_max <= 4; replicas_max++) {
            const strait_groups groups = strait_groups_make(n, n, replicas_max);
            int order[STRAIT_GROUPS_MAX];
            struct rig rig = {0};
            strait_groups_order(&groups, order);
            open_rig(&rig, &groups, strait_groups_buffers(&groups, 1));
            strait_gradient_sums_begin(&rig.sums);
            for (int k = 0; k < n + 2; k++) {
                if (k < n) compute(&rig, 0, order[k], k == n - 1);
                if (k >= 2) compute(&rig, 1, order[k - 2], k - 2 == n - 1);
            }
            CHECK_OK(rig.backend->ops->wait(&rig.stream));
            for (int p = 0; p < PARAMS; p++)
                for (int i = 0; i < COLS; i++)
                    CHECK(rig.grads[p][i] == tree(n, 4, 0, p, i));
            close_rig(&rig);
        }
}

/* What a replica is left with are the largest sums that its groups give. */
static void parts_of_a_replica_have_the_bits_of_the_tree(void **state) {
    (void)state;
    const strait_groups groups = strait_groups_make(8, 8, 2);
    const strait_group_owners owners = {{1, 1, 1, 0, 0, 0, 1, 1}};
    strait_pairwise_node parts[STRAIT_GROUPS_MAX];
    unsigned char is_mine[STRAIT_GROUPS_MAX];
    int list[8];
    struct rig rig = {0};
    open_rig(&rig, &groups, STRAIT_GROUPS_MAX / 2);
    const int n = strait_groups_list(&groups, &owners, 0, list);
    for (int k = 0; k < n; k++)
        for (int p = 0; p < PARAMS; p++)
            compute(&rig, p, list[k], k == n - 1);
    for (int i = 0; i < 8; i++)
        is_mine[i] = owners.replica[i] == 0;
    CHECK(strait_pairwise_parts(8, is_mine, parts) == 2); // 3, and 4 + 5
    CHECK_OK(rig.backend->ops->wait(&rig.stream));
    for (int k = 0; k < 2; k++)
        for (int p = 0; p < PARAMS; p++) {
            const strait_tensor t = strait_gradient_sums_get(&rig.sums, parts[k], p);
            for (int i = 0; i < COLS; i++)
                CHECK(((float *)t.data)[i] == tree(8, parts[k].level, parts[k].index, p, i));
        }
    close_rig(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_have_the_bits_of_the_tree),
        cmocka_unit_test(parts_of_a_replica_have_the_bits_of_the_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
