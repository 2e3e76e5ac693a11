/* rig.h - a device, a stream and a few parameters, for the tests of this module. */
#pragma once

#include "backend/slab.h"
#include "base/rng/rng.h"
#include "check.h"
#include "optim/optimizer.h"

#include <stdio.h>

enum {
    RIG_MAX = 8
};

struct rig {
    struct strait_backend *backend;
    struct strait_stream stream;
    struct strait_slab slab;
    strait_param params[RIG_MAX];
    int n;
};

typedef struct rig_shape {
    strait_role role;
    int64_t rows, cols;
} rig_shape;

/* One parameter of each of five roles. */
static const rig_shape rig_five[] = {
    {STRAIT_ROLE_MATRIX, 7, 5}, {STRAIT_ROLE_RESIDUAL_OUT, 5, 13}, {STRAIT_ROLE_EMBEDDING, 11, 5},
    {STRAIT_ROLE_HEAD, 11, 5},  {STRAIT_ROLE_GAIN, 1, 5},
};

/* Settings for an optimizer of the registry; every role has its own learning rate and decay. */
static inline strait_optim_spec rig_spec(const char *name) {
    strait_optim_spec spec = {.ops = strait_optimizer_find(name),
                              .beta1 = 0.9f,
                              .beta2 = 0.99f,
                              .epsilon = 1e-8f,
                              .momentum = 0.95f,
                              .momentum_start = 0.85f,
                              .momentum_warmup = 5};
    for (int role = 0; role < STRAIT_ROLE_COUNT; role++)
        spec.groups[role] = (strait_optim_group){.learning_rate = 0.01f * (float)(role + 1),
                                                 .weight_decay = 0.1f * (float)role};
    return spec;
}

/* Values and gradients are on the cpu, so tests read and write them in place. */
static inline float *rig_f32(strait_tensor t) {
    return t.data;
}

static inline int64_t rig_count(strait_tensor t) {
    return t.rows * t.cols;
}

static inline void rig_random(strait_tensor t, uint64_t seed, float scale) {
    strait_rng_normals((strait_rng){seed, 0}, 0, t.data, (size_t)rig_count(t));
    for (int64_t i = 0; i < rig_count(t); i++)
        rig_f32(t)[i] *= scale;
}

static inline void rig_open(struct rig *rig, int n_threads, const rig_shape *shapes, int n) {
    *rig = (struct rig){.n = n};
    const strait_backend_spec spec = {.name = "cpu", .n_threads = n_threads};
    CHECK_OK(strait_backend_open(spec, &rig->backend));
    CHECK_OK(rig->backend->ops->stream_open(rig->backend, &rig->stream));
    for (int i = 0; i < n; i++) {
        strait_param *p = &rig->params[i];
        (void)snprintf(p->name, sizeof p->name, "p%d", i);
        p->role = shapes[i].role;
        CHECK_OK(
            strait_slab_add(&rig->slab, STRAIT_F32, shapes[i].rows, shapes[i].cols, &p->value));
        CHECK_OK(strait_slab_add(&rig->slab, STRAIT_F32, shapes[i].rows, shapes[i].cols, &p->grad));
    }
    CHECK_OK(strait_slab_commit(&rig->slab, rig->backend));
    for (int i = 0; i < n; i++)
        rig_random(rig->params[i].value, 100 + (uint64_t)i, 0.5f);
}

static inline void rig_close(struct rig *rig) {
    strait_slab_fini(&rig->slab);
    rig->backend->ops->stream_close(&rig->stream);
    strait_backend_close(&rig->backend);
}

/* Draws new gradients, which depend on the step only. */
static inline void rig_gradients(struct rig *rig, int64_t step) {
    for (int i = 0; i < rig->n; i++)
        rig_random(rig->params[i].grad, (uint64_t)(1000 * step + i), 0.3f);
}

/* Clips and updates once, and waits. */
static inline void rig_step(struct rig *rig, struct strait_optimizer *opt, int64_t step,
                            float factor) {
    CHECK_OK(strait_optimizer_clip(opt, &rig->stream, step));
    CHECK_OK(strait_optimizer_step(opt, &rig->stream, step, factor));
    CHECK_OK(rig->backend->ops->wait(&rig->stream));
}
