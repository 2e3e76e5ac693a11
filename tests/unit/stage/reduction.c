/* Two replicas sum gradients over real links: the tree's bits, and what they refuse. */
#include "base/clock.h"
#include "reduction_rig.h"
#include "stage/replicas/quantize.h"
#include "stage/replicas/value_set.h"
#include "stage/runner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sums in two steps; returns the bytes that replica 1 sent per step. */
static double sum_twice(void) {
    struct pair pair;
    strait_link_stats stats = {0};
    static struct side sides[2];
    pair_open(&pair);
    for (int i = 0; i < 2; i++)
        open_side(&sides[i], &pair, i);
    for (int64_t step = 0; step < 2; step++) {
        for (int i = 0; i < 2; i++) {
            strait_reduction_begin(sides[i].reduction, step, &owners);
            CHECK(!strait_reduction_is_done(sides[i].reduction));
            compute(&sides[i], i);
            CHECK_OK(strait_reduction_complete(sides[i].reduction, &sides[i].stream));
        }
        CHECK(strait_reduction_awaited(sides[0].reduction) == 1);
        exchange(&pair, sides);
        for (int i = 0; i < 2; i++) {
            CHECK_OK(strait_reduction_finish(sides[i].reduction, &sides[i].stream));
            for (int k = 0; k < n_values; k++)
                CHECK(sides[i].grads[k] == value_of(0, k) + value_of(1, k) + value_of(2, k));
        }
        for (int k = 0; k < LOSSES; k++)
            CHECK(sides[0].losses[k] == 10.0 * (k / 2) + k % 2);
    }
    CHECK_OK(strait_mesh_stats(pair.meshes[1], pair.peers[1], &stats));
    for (int i = 0; i < 2; i++)
        close_side(&sides[i]);
    pair_close(&pair);
    return (double)stats.sent_payload / 2;
}

static void replicas_end_with_the_bits_of_the_tree(void **state) {
    (void)state;
    (void)sum_twice();
}

/* Replica 1 sends half of each of its two sums, and half of the result: not all to replica 0. */
static void replicas_of_a_small_stage_share_the_work(void **state) {
    (void)state;
    n_values = FEW_VALUES;
    const double sent = sum_twice();
    n_values = VALUES;
    CHECK(sent >= 1.5 * 4 * FEW_VALUES && sent <= 1.6 * 4 * FEW_VALUES);
}

/* Fields of a message that replica 1 sends to replica 0. */
struct claim {
    int flags, chunk, level, index, stage;
    int64_t step;
    size_t bytes;
    int is_good;
};

static void rejects_what_is_not_expected(void **state) {
    (void)state;
    static const size_t full = STRAIT_REDUCTION_CHUNK * sizeof(float), rest = 77 * sizeof(float);
    const struct claim claims[] = {
        {0, 0, 1, 1, 4, 1, full, 0}, // another step
        {0, 0, 0, 1, 3, 0, full, 0}, // another stage
        {0, 1, 0, 1, 4, 0, full, 0}, // a chunk that is not ours
        {0, 7, 0, 1, 4, 0, full, 0}, // no such chunk
        {0, 2, 0, 1, 4, 0, full, 0}, // too long for the last chunk
        {0, 0, 0, 3, 4, 0, full, 0}, // no such node
        {0, 0, 9, 0, 4, 0, full, 0}, // no such level
        {0, 0, 0, 0, 4, 0, full, 0}, // a group of ours
        {1, 0, 0, 0, 4, 0, full, 0}, // the sum of a chunk that we own
        {2, 0, 0, 0, 4, 0, 8, 0},    // too few losses
        {3, 1, 0, 0, 4, 0, full, 0}, // nothing that exists
        {0, 2, 0, 1, 4, 0, rest, 1},
        {0, 2, 0, 1, 4, 0, rest, 0}, // once is enough
        {2, 0, 0, 0, 4, 0, LOSSES * sizeof(double), 1},
        {2, 0, 0, 0, 4, 0, LOSSES * sizeof(double), 0},
    };
    struct pair pair;
    static struct side side;
    pair_open(&pair);
    open_side(&side, &pair, 0);
    strait_reduction_begin(side.reduction, 0, &owners);
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
        const struct claim *c = &claims[i];
        struct strait_msg *msg = NULL;
        CHECK_OK(
            strait_msg_open(strait_mesh_pool(pair.meshes[1]), STRAIT_MSG_REDUCE, c->bytes, &msg));
        memset(msg->body, 0, msg->size);
        msg->flags = (uint8_t)c->flags;
        msg->microbatch = (uint16_t)c->chunk;
        msg->basis = (uint16_t)(c->level << 8 | c->index);
        msg->boundary = (uint16_t)c->stage;
        msg->step = (uint32_t)c->step;
        CHECK_OK(strait_mesh_send_wait(pair.meshes[1], pair.peers[1], 10000, &msg));
        msg = pair_take(&pair, 0);
        if (c->is_good)
            CHECK_OK(strait_reduction_deliver(side.reduction, &msg));
        else
            CHECK_FAILS(strait_reduction_deliver(side.reduction, &msg), STRAIT_EPROTO,
                        "unexpected gradients");
        strait_msg_close(&msg);
    }
    close_side(&side);
    pair_close(&pair);
}

/* Replica 1 sends a sum of our group before we know whose it is: the step fails. */
static void rejects_groups_of_others_that_came_early(void **state) {
    (void)state;
    struct pair pair;
    static struct side side;
    struct strait_msg *msg = NULL;
    pair_open(&pair);
    open_side(&side, &pair, 0);
    CHECK_OK(strait_msg_open(strait_mesh_pool(pair.meshes[1]), STRAIT_MSG_REDUCE,
                             STRAIT_REDUCTION_CHUNK * sizeof(float), &msg));
    memset(msg->body, 0, msg->size);
    msg->boundary = 4;
    CHECK_OK(strait_mesh_send_wait(pair.meshes[1], pair.peers[1], 10000, &msg));
    msg = pair_take(&pair, 0);
    CHECK_OK(strait_reduction_deliver(side.reduction, &msg));
    strait_reduction_begin(side.reduction, 0, &owners);
    CHECK_FAILS(strait_reduction_complete(side.reduction, &side.stream), STRAIT_EPROTO,
                "from a replica that does not own them");
    close_side(&side);
    pair_close(&pair);
}

static strait_err ignore(void *user, struct strait_msg **msg) {
    (void)user;
    strait_msg_close(msg);
    return STRAIT_OK;
}

/* Replica 0 is connected and reads nothing: the queue to it stays full. */
static void gives_up_a_replica_that_reads_nothing(void **state) {
    (void)state;
    struct pair pair;
    static struct side side;
    static struct strait_runner runner;
    pair_open_with(&pair, 1000);
    n_values = 40 * STRAIT_REDUCTION_CHUNK; // more than a link holds
    open_side(&side, &pair, 1);
    strait_reduction_begin(side.reduction, 0, &owners);
    compute(&side, 1);
    CHECK_OK(strait_reduction_complete(side.reduction, &side.stream));
    runner = (struct strait_runner){.stage = 4,
                                    .replica = 1,
                                    .reduction = side.reduction,
                                    .mesh = pair.meshes[1],
                                    .deadline_ms = 200,
                                    .on_message = ignore};
    const int64_t began = strait_clock_ns();
    CHECK_FAILS(strait_runner_exchange_sums(&runner, 0, 200), STRAIT_ETIMEDOUT,
                "nothing was read by replica 0 for 0.2 s");
    CHECK(strait_clock_ns() - began < INT64_C(600000000000)); // a busy machine is slow
    close_side(&side);
    pair_close(&pair);
    n_values = VALUES;
}

static void counts_what_a_replica_sends(void **state) {
    (void)state;
    static strait_run_plan plan;
    plan = (strait_run_plan){.groups = strait_groups_make(8, 8, 3),
                             .replicas = {1, 2, 3},
                             .reduce_bits = 32,
                             .sums_pairwise = 1};
    CHECK(strait_reduction_sent_bytes(&plan, 0, 1000) == 0.0);
    CHECK(strait_reduction_sent_bytes(&plan, 1, 1000) == 4000.0);  // half out, half back
    CHECK(strait_reduction_sent_bytes(&plan, 2, 3000) == 24000.0); // one of them has two sums
    CHECK(strait_reduction_residual_bytes(&plan, 2, 3000) == 0);
    plan.sums_pairwise = 0;
    CHECK(strait_reduction_sent_bytes(&plan, 2, 3000) == 16000.0);
    plan.reduce_bits = 4; // 12 blocks: a scale and half a byte per value
    CHECK(strait_reduction_sent_bytes(&plan, 1, 3000) == 1548.0);
    CHECK(strait_reduction_residual_bytes(&plan, 2, 3000) == 16000);
}

/* What rounding loses comes with a later sum: the mean of many is exact. */
static void residuals_lose_nothing_in_the_long_run(void **state) {
    (void)state;
    enum {
        N = 300, // a whole block and part of one
        TIMES = 200
    };
    for (int bits = 2; bits <= 8; bits *= 2) {
        float x[N], back[N], residual[N] = {0};
        double sums[N] = {0};
        unsigned char bytes[2 * N];
        CHECK(strait_quantized_bytes(bits, N) <= sizeof bytes);
        for (int i = 0; i < N; i++)
            x[i] = (float)(i % 37 - 18) * (i < 256 ? 1.0f : 1e-3f) + 0.1f;
        for (int t = 0; t < TIMES; t++) {
            strait_quantize(bits, x, residual, N, bytes);
            strait_dequantize(bits, bytes, N, back);
            for (int i = 0; i < N; i++)
                sums[i] += (double)back[i];
        }
        for (int i = 0; i < N; i++) {
            /* Four levels cut off what is large until the mean of its block has grown. */
            const double step = (i < 256 ? 19.0 : 0.13) * (bits == 2 ? 2 : 1) /
                                ((1 << (bits - 1)) - 1);
            CHECK(fabs(sums[i] - TIMES * (double)x[i]) <= step);
        }
        x[3] = NAN;
        strait_quantize(bits, x, residual, N, bytes);
        strait_dequantize(bits, bytes, N, back);
        CHECK(isnan(back[3]) && isnan(back[0]) && !isnan(back[299]));
        CHECK(residual[3] == 0.0f && residual[0] == 0.0f);
    }
}

/* Whole and partial blocks, with values that are far apart, zero, and not finite. */
static void fill_values(float *x, float *residual, int n, int block) {
    for (int i = 0; i < n; i++) {
        x[i] = (float)((i * 7919 + block * 31) % 2003 - 1001) * (i % 5 == 0 ? 1.0f : 1e-3f);
        residual[i] = (float)(i % 13 - 6) * 1e-2f;
    }
    if (block == 1) memset(x, 0, (size_t)n * sizeof *x);
    if (block == 1) memset(residual, 0, (size_t)n * sizeof *residual);
    if (block == 2) x[n / 2] = INFINITY;
}

static void instruction_sets_quantize_to_the_same_bits(void **state) {
    (void)state;
    enum {
        N = STRAIT_QUANTIZE_BLOCK
    };
    const struct strait_value_set *first = strait_value_sets;
    for (const struct strait_value_set *set = first; set->name != NULL; set++)
        for (int bits = 2; bits <= 8 && set->is_supported(); bits *= 2)
            for (int k = 0; k < 12; k++) {
                const int n = k % 2 == 0 ? N : 1 + k * 19;
                float x[N], a[N], b[N], from_a[N] = {0}, from_b[N] = {0};
                unsigned char bytes_a[2 * N] = {0}, bytes_b[2 * N] = {0};
                fill_values(x, a, n, k / 2);
                memcpy(b, a, sizeof b);
                first->quantize(bits, x, a, n, bytes_a);
                set->quantize(bits, x, b, n, bytes_b);
                CHECK(memcmp(bytes_a, bytes_b, sizeof bytes_a) == 0);
                CHECK(memcmp(a, b, (size_t)n * sizeof *a) == 0);
                first->dequantize(bits, bytes_a, n, from_a);
                set->dequantize(bits, bytes_a, n, from_b);
                CHECK(memcmp(from_a, from_b, sizeof from_a) == 0 || k / 2 == 2);
            }
}

static void instruction_sets_take_the_same_outer_step(void **state) {
    (void)state;
    enum {
        N = 1003
    };
    const struct strait_value_set *first = strait_value_sets;
    for (const struct strait_value_set *set = first; set->name != NULL; set++) {
        float average[N], sent[N], values[2][3][N];
        strait_value_step steps[2];
        if (!set->is_supported()) continue;
        for (int side = 0; side < 2; side++) {
            for (int i = 0; i < N; i++) {
                average[i] = (float)(i % 31 - 15) * 1e-3f;
                sent[i] = (float)(i % 17) * 0.1f;
                values[side][0][i] = sent[i] + (float)(i % 7) * 1e-2f;
                values[side][1][i] = (float)(i % 11) * 1e-3f;
            }
            const struct strait_value_set *by = side == 0 ? first : set;
            steps[side] = (strait_value_step){0.7f, 0.9f, average, values[side][0], values[side][1],
                                              sent, 1.0,  2.0};
            by->step(&steps[side], N);
            by->subtract(values[side][0], sent, N, values[side][2]);
            by->add(0.3f, average, N, values[side][2]);
            by->scale(1.7f, N, values[side][2]);
            steps[side].size += by->squares(average, N);
        }
        CHECK(memcmp(values[0], values[1], sizeof values[0]) == 0);
        CHECK(steps[0].distance == steps[1].distance && steps[0].size == steps[1].size);
        CHECK(steps[0].distance > 1.0 && steps[0].size > 2.0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replicas_end_with_the_bits_of_the_tree),
        cmocka_unit_test(replicas_of_a_small_stage_share_the_work),
        cmocka_unit_test(rejects_what_is_not_expected),
        cmocka_unit_test(rejects_groups_of_others_that_came_early),
        cmocka_unit_test(gives_up_a_replica_that_reads_nothing),
        cmocka_unit_test(counts_what_a_replica_sends),
        cmocka_unit_test(residuals_lose_nothing_in_the_long_run),
        cmocka_unit_test(instruction_sets_quantize_to_the_same_bits),
        cmocka_unit_test(instruction_sets_take_the_same_outer_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
