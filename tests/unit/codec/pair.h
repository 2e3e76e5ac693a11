/* pair.h - one boundary with both sides on the cpu, for tests that compare numbers. */
#pragma once

#include "base/rng/rng.h"
#include "check.h"
#include "codec/codec.h"

#include <stdlib.h>

struct pair {
    struct strait_backend *be;
    struct strait_stream stream;
    struct strait_codec *sender, *receiver;
    strait_tensor wire[2]; // by direction
    strait_tensor tokens;
    int64_t step, microbatch;
};

static inline float *f32(strait_tensor t) {
    return t.data;
}

static inline strait_tensor pair_tensor(int64_t rows, int64_t cols) {
    strait_tensor t = {NULL, STRAIT_F32, rows, cols};
    t.data = calloc((size_t)(rows * cols), sizeof(float));
    assert_non_null(t.data);
    return t;
}

static inline strait_tensor pair_normals(int64_t rows, int64_t cols, uint64_t seed) {
    strait_tensor t = pair_tensor(rows, cols);
    strait_rng_normals((strait_rng){seed, 77}, 0, t.data, (size_t)(rows * cols));
    return t;
}

/* `spec` needs name, rows and cols; boundary and slots have defaults. Uses the reference kernels,
 * or the fastest ones of this processor. */
static inline void pair_open_on(struct pair *p, int is_reference, strait_codec_spec spec) {
    const strait_backend_spec device = {
        .name = "cpu", .n_threads = 1, .is_reference = is_reference};
    *p = (struct pair){0};
    if (spec.n_slots == 0) spec.n_slots = 1;
    if (spec.n_boundaries == 0) spec.n_boundaries = 1;
    CHECK_OK(strait_backend_open(device, &p->be));
    CHECK_OK(p->be->ops->stream_open(p->be, &p->stream));
    CHECK_OK(strait_codec_check(&spec));
    CHECK_OK(strait_codec_open(&spec, STRAIT_SENDER, p->be, &p->sender));
    CHECK_OK(strait_codec_open(&spec, STRAIT_RECEIVER, p->be, &p->receiver));
    if (spec.boundary == 0) CHECK_OK(strait_codec_join(NULL, p->sender));
    if (spec.boundary == spec.n_boundaries - 1) CHECK_OK(strait_codec_join(p->receiver, NULL));
    for (int way = 0; way < 2; way++) {
        const size_t bytes = strait_codec_wire_bytes(&spec, (strait_direction)way);
        p->wire[way] = (strait_tensor){malloc(bytes), STRAIT_I8, 1, (int64_t)bytes};
        assert_non_null(p->wire[way].data);
    }
    p->tokens = (strait_tensor){calloc((size_t)spec.rows, 4), STRAIT_I32, spec.rows, 1};
    for (int64_t i = 0; i < spec.rows && spec.vocab > 0; i++)
        ((int32_t *)p->tokens.data)[i] = (int32_t)(i * 7 % spec.vocab);
}

static inline void pair_open(struct pair *p, strait_codec_spec spec) {
    pair_open_on(p, 0, spec);
}

static inline void pair_close(struct pair *p) {
    strait_codec_close(&p->sender);
    strait_codec_close(&p->receiver);
    p->be->ops->stream_close(&p->stream);
    strait_backend_close(&p->be);
    free(p->wire[0].data);
    free(p->wire[1].data);
    free(p->tokens.data);
}

static inline strait_crossing pair_at(struct pair *p) {
    return (strait_crossing){
        .stream = &p->stream, .step = p->step, .microbatch = p->microbatch, .tokens = p->tokens};
}

/* Sends x and receives it as y. */
static inline void pair_forward(struct pair *p, strait_tensor y, strait_tensor x) {
    const strait_crossing at = pair_at(p);
    CHECK_OK(strait_codec_act_pack(p->sender, &at, p->wire[0], x));
    CHECK_OK(strait_codec_act_unpack(p->receiver, &at, y, p->wire[0]));
}

/* Sends the gradient d_y back and receives it as d_x. */
static inline void pair_backward(struct pair *p, strait_tensor d_x, strait_tensor d_y) {
    const strait_crossing at = pair_at(p);
    CHECK_OK(strait_codec_grad_pack(p->receiver, &at, p->wire[1], d_y));
    CHECK_OK(strait_codec_grad_unpack(p->sender, &at, d_x, p->wire[1]));
}

/* ||a - b|| / ||a|| */
static inline double distance(strait_tensor a, strait_tensor b) {
    double off = 0, size = 0;
    for (int64_t i = 0; i < a.rows * a.cols; i++) {
        const double x = (double)f32(a)[i], y = (double)f32(b)[i];
        off += (x - y) * (x - y);
        size += x * x;
    }
    return sqrt(off / size);
}
