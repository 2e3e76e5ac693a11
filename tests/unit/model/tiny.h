/* tiny.h - small models and batches for the tests of this module. */
#pragma once

#include "backend/backend.h"
#include "base/alloc.h"
#include "base/rng/rng.h"
#include "check.h"
#include "model/stage.h"

enum {
    TINY_TOKENS_MAX = 256
};

typedef struct tiny_batch {
    int32_t tokens[TINY_TOKENS_MAX], targets[TINY_TOKENS_MAX];
} tiny_batch;

/* Awkward on purpose: odd widths, grouped heads, a vocabulary that is not a power of two. */
static inline strait_shape tiny_llama(void) {
    return (strait_shape){.vocab = 37,
                          .context = 12,
                          .layers = 3,
                          .width = 15,
                          .heads = 4,
                          .kv_heads = 2,
                          .head_dim = 6,
                          .ffn = 21,
                          .rope_theta = 10000.0f,
                          .norm_epsilon = 1e-5f};
}

static inline strait_shape tiny_yardstick(void) {
    strait_shape shape = tiny_llama();
    shape.kv_heads = 4;
    shape.head_dim = 8;
    shape.activation = STRAIT_RELU2;
    shape.rope = STRAIT_ROPE_HALF;
    shape.has_qk_norm = 1;
    shape.attention_scale = 0.12f;
    shape.softcap = 15.0f;
    shape.init = STRAIT_INIT_YARDSTICK;
    return shape;
}

/* The same shape with all local and optional parts. */
static inline strait_shape tiny_local(strait_shape shape, int every) {
    shape.conv = 4;
    shape.has_qkv_bias = 1;
    shape.has_qkv_conv = every > 1;
    shape.has_token_tables = 1;
    shape.has_value_tables = 1;
    shape.local_every = every;
    /* Fewer than token ids: some share rows. */
    shape.table_rows = 23;
#ifdef TEST_PARTS // those of tests/unit/model/parts
    shape.has_test_scale = shape.has_test_mix = shape.has_test_mlp_scale = 1;
#endif
    return shape;
}

static inline struct strait_backend *tiny_backend(int is_reference) {
    struct strait_backend *backend = NULL;
    CHECK_OK(strait_backend_open(
        (strait_backend_spec){.name = "cpu", .n_threads = 2, .is_reference = is_reference},
        &backend));
    return backend;
}

static inline strait_stage_spec tiny_spec(strait_shape shape, int64_t n_sequences,
                                          int64_t seq_len) {
    return (strait_stage_spec){.shape = shape,
                               .layers = {0, shape.layers},
                               .n_sequences = n_sequences,
                               .seq_len = seq_len,
                               .n_slots = 1,
                               .is_training = 1};
}

static inline void tiny_fill(tiny_batch *batch, const strait_shape *shape, uint64_t seed) {
    const strait_rng rng = {seed, 5};
    for (uint64_t i = 0; i < TINY_TOKENS_MAX; i++) {
        batch->tokens[i] = (int32_t)(strait_rng_u64(rng, 2 * i) % (uint64_t)shape->vocab);
        batch->targets[i] = (int32_t)(strait_rng_u64(rng, 2 * i + 1) % (uint64_t)shape->vocab);
    }
}

static inline strait_tensor tiny_ids(int32_t *ids, int64_t n) {
    return (strait_tensor){ids, STRAIT_I32, n, 1};
}

/* Zero-initialised matrices hide mistakes: gives every parameter random values. */
static inline void tiny_randomise(struct strait_stage *stage, uint64_t seed) {
    int n = 0;
    strait_param *params = strait_stage_params(stage, &n);
    for (int i = 0; i < n; i++) {
        const strait_rng rng = {seed, strait_rng_stream(params[i].name)};
        float *values = params[i].value.data;
        const int64_t count = params[i].value.rows * params[i].value.cols;
        strait_rng_normals(rng, 0, values, (size_t)count);
        const int is_near_one = params[i].role == STRAIT_ROLE_GAIN &&
                                strstr(params[i].name, "conv") == NULL;
        const int is_stream = params[i].role == STRAIT_ROLE_EMBEDDING ||
                              params[i].role == STRAIT_ROLE_TOKEN_TABLE;
        const float scale = is_stream ? 1.0f : 0.3f;
        for (int64_t j = 0; j < count; j++)
            values[j] = values[j] * scale + (is_near_one ? 1.0f : 0.0f);
    }
}

/* Mean loss of slot 0 on a stage that holds the whole model, optionally with gradients. */
static inline double tiny_loss(struct strait_stage *stage, tiny_batch *batch, int with_gradients) {
    const strait_stage_spec *spec = strait_stage_get_spec(stage);
    const int64_t n = spec->n_sequences * spec->seq_len;
    strait_tensor losses;
    CHECK_OK(strait_stage_forward(stage, 0, tiny_ids(batch->tokens, n)));
    CHECK_OK(strait_stage_loss(stage, tiny_ids(batch->targets, n),
                               with_gradients ? 1.0f / (float)n : 0.0f, &losses));
    if (with_gradients) {
        CHECK_OK(strait_stage_backward(stage, 0, 0));
        CHECK_OK(strait_stage_backward_input(stage, 0));
        CHECK_OK(strait_stage_backward_embedding(stage, tiny_ids(batch->tokens, n)));
    }
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += ((const float *)losses.data)[i];
    return sum / (double)n;
}
