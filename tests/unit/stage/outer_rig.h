/* outer_rig.h - two replicas that train on their own, with real links, for the tests of their outer
 * step. */
#pragma once

#include "pair.h"
#include "stage/outer/outer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    VALUES = 3 * STRAIT_OUTER_CHUNK + 77,
    BOTH = 3
};

struct side {
    struct strait_backend *backend;
    struct strait_stream stream;
    struct strait_outer *outer;
    strait_param params[3]; // the second never learns
    float *weights;
};

static struct side sides[2];
static struct pair pair;
static int is_wary; // what the sides check of each other
static int keeps_norm, n_warmup, attention_every, drops_residual;
static float shares[2] = {4.0f, 4.0f}; // of the replicas in an average
static const float rate = 0.7f, momentum = 0.9f;

static inline float initial(int i) {
    return (float)(i % 97 - 48) / 50.0f;
}

/* What replica r has learnt in an interval. */
static inline float learnt(int r, int i) {
    return (float)((i * 31 + r * 17) % 101 - 50) / 5000.0f;
}

static inline void open_side(int r, int bits, int fragments, int overlap) {
    struct side *s = &sides[r];
    const int peers[2] = {r == 0 ? -1 : pair.peers[1], r == 0 ? pair.peers[0] : -1};
    CHECK_OK(
        strait_backend_open((strait_backend_spec){.name = "cpu", .n_threads = 1}, &s->backend));
    CHECK_OK(s->backend->ops->stream_open(s->backend, &s->stream));
    s->weights = malloc((VALUES + 5) * sizeof *s->weights);
    assert_non_null(s->weights);
    for (int i = 0; i < VALUES + 5; i++)
        s->weights[i] = initial(i);
    s->params[0].value = (strait_tensor){s->weights, STRAIT_F32, 10, 100};
    s->params[1].value = (strait_tensor){s->weights + VALUES, STRAIT_F32, 1, 5};
    s->params[1].is_idle = 1;
    (void)snprintf(s->params[0].name, sizeof s->params[0].name, "blocks.0.attention.q");
    s->params[2].value = (strait_tensor){s->weights + 1000, STRAIT_F32, 1, VALUES - 1000};
    const strait_outer_spec spec = {
        .stage = 4,
        .replica = r,
        .n_replicas = 2,
        .n_threads = 1,
        .is_wary = is_wary,
        .params = {.schedule = {20, fragments, overlap, 1000, n_warmup, attention_every},
                   .bits = bits,
                   .state_bits = 32,
                   .has_feedback = !drops_residual,
                   .keeps_norm = keeps_norm,
                   .learning_rate = rate,
                   .momentum = momentum},
        .weights = s->params,
        .n_weights = 3};
    CHECK_OK(strait_outer_open(&spec, s->backend, &s->outer));
    strait_outer_connect(s->outer, pair.meshes[r], peers);
    CHECK_OK(strait_outer_restart(s->outer, &s->stream));
}

static inline void open_both(int bits, int fragments, int overlap) {
    pair_open(&pair);
    for (int r = 0; r < 2; r++)
        open_side(r, bits, fragments, overlap);
}

static inline void close_both(void) {
    for (int r = 0; r < 2; r++) {
        strait_outer_close(&sides[r].outer);
        sides[r].backend->ops->stream_close(&sides[r].stream);
        strait_backend_close(&sides[r].backend);
        free(sides[r].weights);
    }
    pair_close(&pair);
}

static inline void train(int r) {
    for (int i = 0; i < VALUES; i++)
        sides[r].weights[i] -= learnt(r, i);
}

static inline void begin(int r, strait_outer_exchange e) {
    memcpy(e.shares, shares, sizeof shares);
    if (e.alive == 0) e.alive = BOTH;
    CHECK_OK(strait_outer_begin(sides[r].outer, &sides[r].stream, &e));
}

/* Both sides send what they can and take a message each. */
static inline void pass_messages(void) {
    for (int r = 0; r < 2; r++) {
        struct strait_msg *msg = NULL;
        int is_blocked = 0;
        CHECK_OK(strait_outer_progress(sides[r].outer, &is_blocked));
        if (strait_mesh_receive(pair.meshes[r], 1, &msg) != STRAIT_OK) continue;
        if (msg->type == STRAIT_MSG_OUTER) CHECK_OK(strait_outer_deliver(sides[r].outer, &msg));
        strait_msg_close(&msg);
    }
}

/* Exchanges until both have all results. */
static inline void exchange(void) {
    while (!strait_outer_is_complete(sides[0].outer) || !strait_outer_is_complete(sides[1].outer))
        pass_messages();
}

static inline void apply(void) {
    for (int r = 0; r < 2; r++) {
        strait_outer_result result;
        CHECK_OK(strait_outer_apply(sides[r].outer, &sides[r].stream, &result));
        CHECK(result.size > 0.0 && isfinite(result.distance));
    }
}

static inline void average(int64_t step, uint64_t members) {
    for (int r = 0; r < 2; r++)
        begin(r, (strait_outer_exchange){.step = step, .members = members});
    exchange();
    apply();
}

static inline int are_equal(void) {
    return memcmp(sides[0].weights, sides[1].weights, VALUES * sizeof(float)) == 0;
}

/* A message as replica 1 would send it to replica 0, of zeros. */
static inline struct strait_msg *make_message(int flags, int chunk, int64_t step, size_t bytes) {
    struct strait_msg *msg = NULL;
    CHECK_OK(strait_msg_open(strait_mesh_pool(pair.meshes[0]), STRAIT_MSG_OUTER, bytes, &msg));
    if (bytes > 0) memset(msg->body, 0, bytes);
    msg->flags = (uint8_t)flags;
    msg->microbatch = (uint16_t)chunk;
    msg->boundary = 4;
    msg->step = (uint32_t)step;
    msg->peer = pair.peers[0];
    return msg;
}

static inline void deliver(struct strait_msg *msg) {
    CHECK_OK(strait_outer_deliver(sides[0].outer, &msg));
    CHECK(msg == NULL);
}
