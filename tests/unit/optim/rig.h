/* rig.h - a device, a stream and a handful of parameters for the tests of this room. */
#pragma once

#include "backend/slab.h"
#include "base/rng.h"
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

/* New gradients, the same for the same step. */
static inline void rig_gradients(struct rig *rig, int64_t step) {
    for (int i = 0; i < rig->n; i++)
        rig_random(rig->params[i].grad, (uint64_t)(1000 * step + i), 0.3f);
}

static inline void rig_step(struct rig *rig, struct strait_optimizer *opt, int64_t step,
                            float factor) {
    CHECK_OK(strait_optimizer_clip(opt, &rig->stream, step));
    CHECK_OK(strait_optimizer_step(opt, &rig->stream, step, factor));
    CHECK_OK(rig->backend->ops->wait(&rig->stream));
}
