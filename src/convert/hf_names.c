#include "convert/hf_names.h"

#include "base/alloc.h"

#include <stdio.h>
#include <string.h>

enum {
    PER_BLOCK = 11, // at most: nine tensors of a Llama block, a bias or a gain
    OUTSIDE = 3     // embedding, last norm, head
};

struct list {
    strait_hf_tensor *tensors;
    int n;
};

/* Starts a tensor of ours; block -1: outside of blocks. */
static strait_hf_tensor *begin(struct list *list, int block, const char *name, int64_t rows,
                               int64_t cols) {
    strait_hf_tensor *t = &list->tensors[list->n++];
    t->rows = rows;
    t->cols = cols;
    if (block < 0)
        (void)snprintf(t->name, sizeof t->name, "%s", name);
    else
        (void)snprintf(t->name, sizeof t->name, "blocks.%d.%s", block, name);
    return t;
}

static void add_part(strait_hf_tensor *t, int block, const char *name, int64_t rows, int64_t cols) {
    strait_hf_part *part = &t->parts[t->n_parts++];
    part->rows = rows;
    part->cols = cols;
    if (block < 0)
        (void)snprintf(part->name, sizeof part->name, "%s", name);
    else
        (void)snprintf(part->name, sizeof part->name, "model.layers.%d.%s", block, name);
}

/* A tensor of ours that is one of theirs. */
static void add(struct list *list, int block, const char *ours, const char *theirs, int64_t rows,
                int64_t cols) {
    add_part(begin(list, block, ours, rows, cols), block, theirs, rows, cols);
}

/* In the order of strait_attention_add_params. */
static void add_attention(struct list *list, const strait_shape *s, int i) {
    const int64_t d = s->width, p = s->head_dim;
    const int64_t queries = strait_shape_attention_cols(s), keys = (int64_t)s->kv_heads * p;
    add(list, i, "attention.norm", "input_layernorm.weight", 1, d);
    add(list, i, "attention.q", "self_attn.q_proj.weight", queries, d);
    add(list, i, "attention.k", "self_attn.k_proj.weight", keys, d);
    add(list, i, "attention.v", "self_attn.v_proj.weight", keys, d);
    if (s->has_qkv_bias) {
        strait_hf_tensor *t = begin(list, i, "attention.qkv_bias", 1, strait_shape_qkv_cols(s));
        add_part(t, i, "self_attn.q_proj.bias", 1, queries);
        add_part(t, i, "self_attn.k_proj.bias", 1, keys);
        add_part(t, i, "self_attn.v_proj.bias", 1, keys);
    }
    if (s->has_qk_gain) {
        strait_hf_tensor *t = begin(list, i, "attention.qk_gain", 2, p);
        add_part(t, i, "self_attn.q_norm.weight", 1, p);
        add_part(t, i, "self_attn.k_norm.weight", 1, p);
    }
    add(list, i, "attention.out", "self_attn.o_proj.weight", d, queries);
}

static void add_mlp(struct list *list, const strait_shape *s, int i) {
    const int64_t d = s->width, f = s->ffn;
    add(list, i, "mlp.norm", "post_attention_layernorm.weight", 1, d);
    add(list, i, "mlp.gate", "mlp.gate_proj.weight", f, d);
    add(list, i, "mlp.up", "mlp.up_proj.weight", f, d);
    add(list, i, "mlp.down", "mlp.down_proj.weight", d, f);
}

strait_err strait_hf_names_list(const strait_shape *s, strait_hf_tensor **out, int *n) {
    struct list list = {0};
    STRAIT_TRY(strait_alloc((size_t)s->layers * PER_BLOCK + OUTSIDE, sizeof *list.tensors,
                            "names of tensors", (void **)&list.tensors));
    add(&list, -1, "embed.table", "model.embed_tokens.weight", s->vocab, s->width);
    for (int i = 0; i < s->layers; i++) {
        add_attention(&list, s, i);
        add_mlp(&list, s, i);
    }
    add(&list, -1, "head.norm", "model.norm.weight", 1, s->width);
    if (!s->is_tied) add(&list, -1, "head.out", "lm_head.weight", s->vocab, s->width);
    *out = list.tensors;
    *n = list.n;
    return STRAIT_OK;
}

int strait_hf_names_is_idle(const strait_shape *s, const char *name) {
    const char *end = strrchr(name, '.');
    if (s->is_tied && strcmp(name, "lm_head.weight") == 0) return 1;
    return end != NULL && strcmp(end, ".inv_freq") == 0;
}
