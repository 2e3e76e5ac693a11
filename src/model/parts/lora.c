#include "model/parts/lora.h"

#include "backend/backend.h"

#include <stdio.h>
#include <string.h>

const strait_lora_target strait_lora_targets[STRAIT_LORA_TARGETS] = {
    {"q", "q_proj", "attention.q"},    {"k", "k_proj", "attention.k"},
    {"v", "v_proj", "attention.v"},    {"out", "o_proj", "attention.out"},
    {"gate", "gate_proj", "mlp.gate"}, {"up", "up_proj", "mlp.up"},
    {"down", "down_proj", "mlp.down"},
};

static int find_target(const char *word, size_t n) {
    for (int i = 0; i < STRAIT_LORA_TARGETS; i++) {
        const strait_lora_target *t = &strait_lora_targets[i];
        if (strlen(t->name) == n && strncmp(t->name, word, n) == 0) return i;
        if (strlen(t->hf_name) == n && strncmp(t->hf_name, word, n) == 0) return i;
    }
    return -1;
}

strait_err strait_lora_parse_targets(const char *text, int *out) {
    int bits = 0;
    for (const char *at = text + strspn(text, ", "); *at != '\0'; at += strspn(at, ", ")) {
        const size_t n = strcspn(at, ", ");
        const int target = find_target(at, n);
        if (target < 0)
            return STRAIT_FAIL(STRAIT_ECONFIG,
                               "train.lora.targets: \"%.*s\" is no matrix; expected some of q, k, "
                               "v, out, gate, up and down",
                               (int)(n < 40 ? n : 40), at);
        bits |= 1 << target;
        at += n;
    }
    if (bits == 0) return STRAIT_FAIL(STRAIT_ECONFIG, "train.lora.targets: names no matrix");
    *out = bits;
    return STRAIT_OK;
}

int strait_lora_target_of(const strait_shape *shape, const char *name) {
    const char *dot = strncmp(name, "blocks.", 7) == 0 ? strchr(name + 7, '.') : NULL;
    if (shape->lora_rank == 0 || dot == NULL) return -1;
    for (int i = 0; i < STRAIT_LORA_TARGETS; i++)
        if ((shape->lora_targets >> i & 1) != 0 &&
            strcmp(dot + 1, strait_lora_targets[i].param) == 0)
            return i;
    return -1;
}

int64_t strait_lora_count(const strait_shape *s) {
    const int64_t d = s->width, queries = strait_shape_attention_cols(s);
    const int64_t keys = (int64_t)s->kv_heads * s->head_dim;
    const int64_t sides[STRAIT_LORA_TARGETS] = {d + queries, d + keys,   d + keys,  d + queries,
                                                d + s->ffn,  d + s->ffn, d + s->ffn};
    int64_t sum = 0;
    for (int i = 0; i < STRAIT_LORA_TARGETS; i++)
        if ((s->lora_targets >> i & 1) != 0) sum += s->lora_rank * sides[i];
    return sum;
}

float strait_lora_scale(const strait_shape *shape) {
    return shape->lora_alpha / (float)shape->lora_rank;
}

/* The name without "blocks.N.", which the list adds again. */
static strait_err add_side(struct strait_param_list *list, const strait_param *matrix,
                           const char *side, int64_t rows, int64_t cols, strait_param **out) {
    char name[STRAIT_PARAM_NAME];
    const char *dot = strchr(matrix->name + strlen("blocks."), '.');
    (void)snprintf(name, sizeof name, "%.32s.%s", dot + 1, side);
    return strait_param_list_add(list, name, STRAIT_ROLE_MATRIX, rows, cols, out);
}

strait_err strait_lora_add_params(struct strait_param_list *list, int first, strait_lora *adapters,
                                  int *n) {
    const int end = list->n;
    strait_err err = STRAIT_OK;
    list->sums_grads = 1; // zeroed at the start of a step, computed at its end
    for (int i = first; i < end && err == STRAIT_OK; i++) {
        strait_param *matrix = &list->params[i];
        if (strait_lora_target_of(list->shape, matrix->name) < 0) continue;
        strait_lora *adapter = &adapters[(*n)++];
        adapter->matrix = matrix;
        err = add_side(list, matrix, "lora_a", list->shape->lora_rank, matrix->value.cols,
                       &adapter->a);
        if (err == STRAIT_OK)
            err = add_side(list, matrix, "lora_b", matrix->value.rows, list->shape->lora_rank,
                           &adapter->b);
    }
    list->sums_grads = 0;
    return err;
}

/* The targets whose gradients are computed by the product that computes this parameter's; 0: none.
 */
static int targets_of_product(const char *name) {
    enum {
        Q_K_V = 1 << 0 | 1 << 1 | 1 << 2,
        GATE_UP = 1 << 4 | 1 << 5
    };
    for (int i = 0; i < STRAIT_LORA_TARGETS; i++) {
        const char *dot = strncmp(name, "blocks.", 7) == 0 ? strchr(name + 7, '.') : NULL;
        if (dot == NULL || strcmp(dot + 1, strait_lora_targets[i].param) != 0) continue;
        const int bit = 1 << i;
        return (bit & Q_K_V) != 0 ? Q_K_V : (bit & GATE_UP) != 0 ? GATE_UP : bit;
    }
    return 0;
}

void strait_lora_mark_idle(const strait_shape *shape, strait_param *params, int n) {
    for (int i = 0; shape->lora_rank > 0 && i < n; i++) {
        const int is_side = strstr(params[i].name, ".lora_") != NULL;
        params[i].is_idle = !is_side && strait_param_list_is_product(params[i].role) &&
                            (targets_of_product(params[i].name) & shape->lora_targets) == 0;
    }
}

strait_err strait_lora_plan(const strait_shape *shape, const strait_lora *adapters, int n,
                            struct strait_slab *slab, strait_tensor *scratch) {
    int64_t most = 0;
    for (int i = 0; i < n; i++) {
        const int64_t size = adapters[i].matrix->value.rows * adapters[i].matrix->value.cols;
        if (size > most) most = size;
    }
    if (shape->precision == STRAIT_F32 || most == 0) return STRAIT_OK;
    return strait_slab_add(slab, STRAIT_F32, 1, most, scratch);
}

strait_err strait_lora_apply(const strait_shape *shape, const strait_lora *adapters, int n,
                             strait_tensor scratch, struct strait_stream *stream) {
    const struct strait_kernels *k = stream->backend->kernels;
    for (int i = 0; i < n; i++) {
        const strait_param *matrix = adapters[i].matrix;
        strait_tensor sum = matrix->compute;
        if (scratch.data != NULL) // the sum is rounded once, not twice
            sum = (strait_tensor){scratch.data, STRAIT_F32, matrix->value.rows, matrix->value.cols};
        STRAIT_TRY(k->cast(stream, sum, matrix->value));
        STRAIT_TRY(k->matmul(stream, sum, adapters[i].b->value, adapters[i].a->value,
                             (strait_matmul_params){
                                 .alpha = strait_lora_scale(shape), .beta = 1.0f, .is_exact = 1}));
        if (scratch.data != NULL) STRAIT_TRY(k->cast(stream, matrix->compute, sum));
    }
    return STRAIT_OK;
}

strait_err strait_lora_gradients(const strait_shape *shape, const strait_lora *adapters, int n,
                                 struct strait_stream *stream) {
    const struct strait_kernels *k = stream->backend->kernels;
    const float scale = strait_lora_scale(shape);
    for (int i = 0; i < n; i++) {
        const strait_tensor d = adapters[i].matrix->grad;
        STRAIT_TRY(
            k->matmul(stream, adapters[i].b->grad, d, adapters[i].a->value,
                      (strait_matmul_params){.transpose_b = 1, .alpha = scale, .is_exact = 1}));
        STRAIT_TRY(
            k->matmul(stream, adapters[i].a->grad, adapters[i].b->value, d,
                      (strait_matmul_params){.transpose_a = 1, .alpha = scale, .is_exact = 1}));
    }
    return STRAIT_OK;
}
