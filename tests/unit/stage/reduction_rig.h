/* reduction_rig.h - two replicas that sum gradients over real links. */
#pragma once

#include "pair.h"
#include "stage/replicas/reduction.h"

#include <stdlib.h>

enum {
    GROUPS = 3, // not a power of two: one replica has two sums
    VALUES = STRAIT_REDUCTION_CHUNK * 2 + 77,
    FEW_VALUES = 5001, // of a small stage
    LOSSES = 6
};

static int n_values = VALUES;

static float value_of(int group, int i) {
    return (float)((group + 1) * (i % 251 + 1)) / 977.0f * (group == 1 ? 1e4f : 1.0f);
}

struct side {
    struct strait_backend *backend;
    struct strait_stream stream;
    struct strait_gradient_sums sums;
    struct strait_reduction *reduction;
    strait_param params[2]; // the second one ends in the middle of a chunk
    float *grads;
    double losses[LOSSES];
};

static const strait_groups groups = {.n_microbatches = GROUPS, .n_groups = GROUPS, .n_streams = 2};
static const strait_group_owners owners = {{0, 1, 1}};

static void open_side(struct side *s, struct pair *pair, int replica) {
    const int peers[2] = {replica == 0 ? -1 : pair->peers[1], replica == 0 ? pair->peers[0] : -1};
    CHECK_OK(
        strait_backend_open((strait_backend_spec){.name = "cpu", .n_threads = 1}, &s->backend));
    CHECK_OK(s->backend->ops->stream_open(s->backend, &s->stream));
    s->grads = malloc((size_t)n_values * sizeof *s->grads);
    assert_non_null(s->grads);
    s->params[0] = (strait_param){.value = {NULL, STRAIT_F32, 1, 1000},
                                  .grad = {s->grads, STRAIT_F32, 1, 1000}};
    s->params[1] = (strait_param){.value = {NULL, STRAIT_F32, 1, n_values - 1000},
                                  .grad = {s->grads + 1000, STRAIT_F32, 1, n_values - 1000},
                                  .is_deferred = 1};
    CHECK_OK(strait_gradient_sums_init(&s->sums, GROUPS, 2, s->params, 2, s->backend));
    const strait_reduction_spec spec = {.stage = 4,
                                        .replica = replica,
                                        .n_replicas = 2,
                                        .bits = 32,
                                        .groups = &groups,
                                        .sums = &s->sums,
                                        .params = s->params,
                                        .n_params = 2,
                                        .losses = s->losses,
                                        .n_losses = LOSSES};
    CHECK_OK(strait_reduction_open(&spec, s->backend, &s->reduction));
    strait_reduction_connect(s->reduction, pair->meshes[replica], peers);
}

static void close_side(struct side *s) {
    strait_reduction_close(&s->reduction);
    strait_gradient_sums_fini(&s->sums);
    s->backend->ops->stream_close(&s->stream);
    strait_backend_close(&s->backend);
    free(s->grads);
}

static void compute(struct side *s, int replica) {
    int order[STRAIT_GROUPS_MAX];
    int last = 0;
    strait_groups_order(&groups, order);
    for (int i = 0; i < GROUPS; i++)
        if (owners.replica[order[i]] == replica) last = order[i];
    strait_gradient_sums_begin(&s->sums);
    for (int k = 0; k < GROUPS; k++) {
        if (owners.replica[order[k]] != replica) continue;
        for (int i = 0; i < n_values; i++)
            s->grads[i] = value_of(order[k], i);
        for (int kind = 0; kind < 2; kind++) {
            CHECK_OK(strait_gradient_sums_add(&s->sums, &s->stream, kind, order[k]));
            if (order[k] == last) continue;
            CHECK_OK(strait_gradient_sums_put_aside(&s->sums, &s->stream, kind));
            strait_reduction_ready(s->reduction, s->sums.kinds[kind].newest, kind);
        }
        s->losses[2 * order[k]] = 10.0 * order[k];
        s->losses[2 * order[k] + 1] = 10.0 * order[k] + 1.0;
    }
}

/* Exchanges until both have everything; what arrives before a step begins is kept. */
static void exchange(struct pair *pair, struct side *sides) {
    while (!strait_reduction_is_done(sides[0].reduction) ||
           !strait_reduction_is_done(sides[1].reduction))
        for (int i = 0; i < 2; i++) {
            struct strait_msg *msg = NULL;
            int is_blocked = 0;
            CHECK_OK(strait_reduction_send(sides[i].reduction, &is_blocked));
            if (strait_mesh_receive(pair->meshes[i], 1, &msg) != STRAIT_OK) continue;
            if (msg->type == STRAIT_MSG_REDUCE)
                CHECK_OK(strait_reduction_deliver(sides[i].reduction, &msg));
            strait_msg_close(&msg);
        }
}
