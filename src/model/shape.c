#include "model/shape.h"

#include "model/parts/lora.h"
#include "model/parts/parts.h"

#include <math.h>

enum {
    LEAST_TABLE = 6144,  // rows that the rule leaves a table, however small the model is
    TABLE_SHARE = 10,    // one part in so many of a stage's parameters
    TABLE_ROWS_STEP = 64 // the rule's numbers are multiples of it
};

/* Grouped queries share keys evenly, and the rotation takes values in pairs. */
static strait_err check_heads(const strait_shape *s) {
    if (s->heads < 1 || s->kv_heads < 1 || s->heads % s->kv_heads != 0)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "model.heads (%d) must be a multiple of model.kv_heads (%d)", s->heads,
                           s->kv_heads);
    if (s->head_dim < 2 || s->head_dim % 2 != 0)
        return STRAIT_FAIL(STRAIT_ECONFIG, "model.head_dim (%d) must be even and at least 2",
                           s->head_dim);
    if (s->rope == STRAIT_ROPE_HALF && s->head_dim % 4 != 0)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "model.rope half needs model.head_dim (%d) to be a multiple of 4",
                           s->head_dim);
    return STRAIT_OK;
}

/* A scaling needs its numbers, and has an effect only on the full rope. */
static strait_err check_rope(const strait_shape *s) {
    if (s->rope_scaling == STRAIT_ROPE_UNSCALED) return STRAIT_OK;
    if (s->rope != STRAIT_ROPE_FULL)
        return STRAIT_FAIL(STRAIT_ECONFIG, "model.rope_scaling needs model.rope full");
    if (!(s->rope_factor >= 1.0f))
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "model.rope_scaling needs model.rope_factor (%g) of at "
                           "least 1",
                           (double)s->rope_factor);
    if (s->rope_scaling == STRAIT_ROPE_LLAMA3 &&
        !(s->rope_low > 0.0f && s->rope_high > s->rope_low && s->rope_original > 0))
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "model.rope_scaling llama3 needs model.rope_original (%lld) and "
                           "0 < model.rope_low (%g) < model.rope_high (%g)",
                           (long long)s->rope_original, (double)s->rope_low, (double)s->rope_high);
    return STRAIT_OK;
}

/* Local parts; and optional parts with the codecs whose models have no place for them. */
static strait_err check_local(const strait_shape *s) {
    if (s->conv < 0 || s->conv > STRAIT_CONV_TAPS)
        return STRAIT_FAIL(STRAIT_ECONFIG, "model.conv (%d) must be from 0 to %d taps", s->conv,
                           STRAIT_CONV_TAPS);
    if (s->has_qkv_conv && s->conv == 0)
        return STRAIT_FAIL(STRAIT_ECONFIG, "model.qkv_conv needs model.conv");
    if (s->local_every < 0)
        return STRAIT_FAIL(STRAIT_ECONFIG, "model.local_every (%d) must not be negative",
                           s->local_every);
    if (s->table_rows < 0 || s->table_rows > s->vocab)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "model.table_rows (%lld) must be from 0 to model.vocab (%lld)",
                           (long long)s->table_rows, (long long)s->vocab);
    const char *option = strait_parts_option(s);
    if (option != NULL && (s->subspace > 0 || s->bottleneck > 0))
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "%s changes the residual stream between blocks, where codecs subspace "
                           "and resbm b know only what the blocks write: %s",
                           option, strait_parts_remedy(s));
    return STRAIT_OK;
}

strait_err strait_shape_check(const strait_shape *s) {
    if (s->vocab < 2) return STRAIT_FAIL(STRAIT_ECONFIG, "model.vocab must be at least 2");
    if (s->context < 1) return STRAIT_FAIL(STRAIT_ECONFIG, "model.context must be at least 1");
    if (s->layers < 1 || s->width < 1 || s->ffn < 1)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "model.layers, model.width and model.ffn must be at least 1");
    if (s->subspace < 0 || s->subspace > s->width)
        return STRAIT_FAIL(STRAIT_ECONFIG, "a subspace of %d dimensions does not fit into width %d",
                           s->subspace, s->width);
    if (s->bottleneck < 0 || s->bottleneck > s->width)
        return STRAIT_FAIL(STRAIT_ECONFIG, "a bottleneck of %d does not fit into width %d",
                           s->bottleneck, s->width);
    if (s->has_qk_gain && !s->has_qk_norm)
        return STRAIT_FAIL(STRAIT_ECONFIG, "model.qk_gain needs model.qk_norm");
    STRAIT_TRY(check_local(s));
    STRAIT_TRY(check_rope(s));
    return check_heads(s);
}

int strait_shape_can_fuse_conv(const strait_shape *shape) {
    return shape->conv > 0 && shape->width % STRAIT_NORM_CONV_MULTIPLE == 0 &&
           shape->width <= STRAIT_NORM_CONV_WIDEST;
}

int strait_shape_has_local(const strait_shape *s, int i) {
    return i % (s->local_every > 0 ? s->local_every : 1) == 0;
}

int strait_shape_reads_tokens(const strait_shape *s) {
    return s->has_value_tables || strait_parts_read_tokens(s);
}

int64_t strait_shape_table_rows(const strait_shape *s) {
    return s->table_rows > 0 ? s->table_rows : s->vocab;
}

int64_t strait_shape_qkv_cols(const strait_shape *s) {
    return (int64_t)(s->heads + 2 * s->kv_heads) * s->head_dim;
}

int64_t strait_shape_attention_cols(const strait_shape *s) {
    return (int64_t)s->heads * s->head_dim;
}

int64_t strait_shape_mlp_cols(const strait_shape *s) {
    return s->activation == STRAIT_SWIGLU ? 2 * (int64_t)s->ffn : s->ffn;
}

/* Weights of one block that are factors of matrix products. */
static int64_t block_matrix_params(const strait_shape *s) {
    return s->width * (strait_shape_qkv_cols(s) + strait_shape_attention_cols(s) +
                       strait_shape_mlp_cols(s) + (int64_t)s->ffn);
}

int64_t strait_shape_block_params(const strait_shape *s) {
    return block_matrix_params(s) + (int64_t)(2 + 2 * s->conv) * s->width +
           (s->has_qkv_conv ? s->conv * strait_shape_qkv_cols(s) : 0) +
           (s->has_qk_gain ? 2 * (int64_t)s->head_dim : 0) +
           (s->has_qkv_bias ? strait_shape_qkv_cols(s) : 0);
}

/* Parameters that only some blocks have. */
static int64_t local_params(const strait_shape *s, int i) {
    const int has_values = s->has_value_tables && strait_shape_has_local(s, i);
    return strait_parts_count(s, i, 0) + strait_lora_count(s) +
           (has_values ? strait_shape_table_rows(s) * s->kv_heads * s->head_dim : 0);
}

int64_t strait_shape_choose_table_rows(const strait_shape *s, int64_t more_cols) {
    const int64_t cols = (s->has_token_tables ? s->width : 0) +
                         (s->has_value_tables ? (int64_t)s->kv_heads * s->head_dim : 0) + more_cols;
    if (cols == 0 || s->vocab <= STRAIT_SHAPE_WHOLE_TABLE) return 0;
    const int64_t every = s->local_every > 0 ? s->local_every : 1;
    const int64_t others = (every < s->layers ? every : s->layers) * strait_shape_block_params(s);
    int64_t rows = others / (TABLE_SHARE - 1) / cols;
    rows -= rows % TABLE_ROWS_STEP;
    if (rows < LEAST_TABLE) rows = LEAST_TABLE;
    return rows < s->vocab ? rows : 0;
}

int64_t strait_shape_params(const strait_shape *s) {
    const int64_t table = s->vocab * s->width;
    int64_t sum = s->layers * strait_shape_block_params(s) + table * (s->is_tied ? 1 : 2) +
                  s->width;
    for (int i = 0; i < s->layers; i++)
        sum += local_params(s, i);
    return sum;
}

double strait_shape_train_flops(const strait_shape *s) {
    /* Each weight of a product costs 2 operations forward and 4 backward per token; look-ups, norms
     * and convolutions are not counted. */
    int64_t weights = s->layers * block_matrix_params(s) + s->vocab * s->width;
    for (int i = 0; i < s->layers; i++)
        weights += strait_parts_count(s, i, 1);
    /* Scores and mixing are two products of context x head_dim per token, halved by causality. */
    const double attention = 0.5 * 2.0 *
                             (double)(s->layers * s->context * strait_shape_attention_cols(s));
    return 6.0 * ((double)weights + attention);
}

int64_t strait_shape_residual_out_rows(const strait_shape *s, int has_head) {
    /* The stage with the head keeps full matrices: no boundary follows it. */
    return s->subspace > 0 && !has_head ? s->subspace : s->width;
}

strait_heads strait_shape_heads(const strait_shape *s, int64_t seq_len) {
    /* 0 is the usual scale of attention scores. */
    const float scale = s->attention_scale > 0.0f ? s->attention_scale
                                                  : 1.0f / sqrtf((float)s->head_dim);
    return (strait_heads){.n_query = s->heads,
                          .n_key = s->kv_heads,
                          .head_dim = s->head_dim,
                          .seq_len = seq_len,
                          .scale = scale};
}
