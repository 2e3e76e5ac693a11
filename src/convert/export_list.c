#include "convert/export_list.h"

#include "base/alloc.h"
#include "codec/codec.h"
#include "model/parts/parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Whether a public class has everything that the blocks of this shape have. */
static int has_plain_blocks(const strait_shape *s) {
    const double scale = 1 / sqrt((double)s->head_dim);
    const int is_usual_scale = s->attention_scale == 0.0f ||
                               fabs((double)s->attention_scale - scale) < 1e-6 * scale;
    return s->activation == STRAIT_SWIGLU && s->rope == STRAIT_ROPE_FULL && is_usual_scale &&
           s->softcap == 0.0f && s->conv == 0 && !s->has_value_tables &&
           strait_parts_option(s) == NULL;
}

/* Whether the stages together compute something that one stage does not: codecs that approximate
 * leave the model as it is, and what `subspace` trains is a plain model. */
static int has_codec_in_model(const strait_run_plan *plan) {
    const unsigned computes = STRAIT_CODEC_TRAINED | STRAIT_CODEC_CODE;
    return plan->n_stages > 1 && (strait_codec_traits(&plan->codec) & computes) != 0;
}

strait_hf_class strait_export_class(const strait_run_plan *plan) {
    const strait_shape *s = &plan->shape;
    if (has_codec_in_model(plan) || !has_plain_blocks(s)) return STRAIT_HF_STRAIT;
    if (s->has_qk_norm && s->has_qkv_bias) return STRAIT_HF_STRAIT;
    if (s->has_qkv_bias) return STRAIT_HF_QWEN2;
    return s->has_qk_norm ? STRAIT_HF_QWEN3 : STRAIT_HF_LLAMA;
}

/* One item per tensor of theirs. */
static void add_parts(struct strait_export_list *list, const strait_hf_tensor *t, int is_ones) {
    int64_t first = 0;
    for (int p = 0; p < t->n_parts; p++) {
        strait_export_item *item = &list->items[list->n_items++];
        const strait_hf_part *part = &t->parts[p];
        *item = (strait_export_item){.source_rows = t->rows,
                                     .source_cols = t->cols,
                                     .first = first,
                                     .rows = part->rows,
                                     .cols = part->cols};
        (void)snprintf(item->name, sizeof item->name, "%s", part->name);
        if (!is_ones) (void)snprintf(item->source, sizeof item->source, "%s", t->name);
        first += part->rows * part->cols;
    }
}

/* A norm of queries and keys without gain is one with gains of 1. */
static strait_err list_public(const strait_run_plan *plan, struct strait_export_list *list) {
    strait_shape shape = plan->shape;
    strait_hf_tensor *tensors = NULL;
    int n = 0;
    const int has_no_gain = shape.has_qk_norm && !shape.has_qk_gain;
    shape.has_qk_gain = shape.has_qk_norm;
    STRAIT_TRY(strait_hf_names_list(&shape, &tensors, &n));
    const strait_err err = strait_alloc((size_t)n * STRAIT_HF_PARTS, sizeof *list->items,
                                        "list of tensors", (void **)&list->items);
    for (int i = 0; err == STRAIT_OK && i < n; i++) {
        const char *dot = strrchr(tensors[i].name, '.');
        add_parts(list, &tensors[i], has_no_gain && strcmp(dot, ".qk_gain") == 0);
    }
    strait_alloc_free(tensors);
    return err;
}

/* Names and shapes are those of the files. */
static void add_own(const strait_safetensor *t, struct strait_export_list *list) {
    strait_export_item *item = &list->items[list->n_items];
    const int64_t rows = t->n_dims > 1 ? t->dims[0] : 1, cols = t->dims[t->n_dims - 1];
    if (strait_weights_source_is_adapter(t->name)) return;
    for (int i = 0; i < list->n_items; i++)
        if (strcmp(list->items[i].name, t->name) == 0) return; // a tied embedding is in two stages
    *item = (strait_export_item){
        .source_rows = rows, .source_cols = cols, .rows = rows, .cols = cols};
    (void)snprintf(item->name, sizeof item->name, "%s", t->name);
    (void)snprintf(item->source, sizeof item->source, "%s", t->name);
    list->n_items++;
}

/* All weights; moments and codec state are in the other files. */
static strait_err list_own(const struct strait_checkpoint *checkpoint,
                           struct strait_export_list *list) {
    const struct strait_safetensors *file = NULL;
    const char *name = NULL;
    size_t n = 0;
    for (int i = 0; (file = strait_checkpoint_file(checkpoint, i, &name)) != NULL; i++)
        n += (size_t)strait_safetensors_count(file);
    STRAIT_TRY(strait_alloc(n, sizeof *list->items, "list of tensors", (void **)&list->items));
    for (int i = 0; (file = strait_checkpoint_file(checkpoint, i, &name)) != NULL; i++)
        for (int t = 0; strstr(name, ".state.") == NULL && t < strait_safetensors_count(file); t++)
            add_own(strait_safetensors_at(file, t), list);
    return STRAIT_OK;
}

strait_err strait_export_list_init(const struct strait_checkpoint *checkpoint,
                                   const strait_run_plan *plan, strait_hf_class class,
                                   struct strait_export_list *out) {
    if (plan->n_stages > 1 && plan->codec.keeps_fixed)
        return STRAIT_FAIL(STRAIT_ENOTSUP,
                           "a model that was trained with link.codec.without_fixed loses a part of "
                           "its stream at every boundary, which no exported class does");
    if (class != STRAIT_HF_STRAIT) return list_public(plan, out);
    if (plan->shape.subspace > 0)
        return STRAIT_FAIL(STRAIT_ENOTSUP,
                           "a model with codec subspace, variant factored, exports only without "
                           "convolutions, tables and soft-cap: train it with variant full");
    return list_own(checkpoint, out);
}

void strait_export_list_fini(struct strait_export_list *list) {
    strait_alloc_free(list->items);
    *list = (struct strait_export_list){0};
}

void strait_export_list_split(struct strait_export_list *list, size_t value, size_t most) {
    size_t used = 0;
    list->n_files = 1;
    for (int i = 0; i < list->n_items; i++) {
        strait_export_item *item = &list->items[i];
        const size_t bytes = (size_t)(item->rows * item->cols) * value;
        if (used > 0 && used + bytes > most) {
            list->n_files++;
            used = 0;
        }
        item->file = list->n_files - 1;
        used += bytes;
    }
}

void strait_export_list_file(const struct strait_export_list *list, int file, char out[64]) {
    if (list->n_files == 1)
        (void)snprintf(out, 64, "model.safetensors");
    else
        (void)snprintf(out, 64, "model-%05d-of-%05d.safetensors", file + 1, list->n_files);
}
