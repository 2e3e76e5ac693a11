/* export.c - from a checkpoint to one GGUF file, for llama.cpp. */
#include "base/alloc.h"
#include "base/file.h"
#include "config/description.h"
#include "convert/export_list.h"
#include "convert/files.h"
#include "convert/floats.h"
#include "convert/gguf/tokenizer.h"
#include "data/tokenizer/tokenizer.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* How to write the matrices, and llama.cpp's number for a file of that kind. */
typedef struct format {
    const char *name;
    strait_gguf_type type;
    uint32_t file_type;
} format;

static const format formats[] = {{"f32", STRAIT_GGUF_F32, 0},
                                 {"f16", STRAIT_GGUF_F16, 1},
                                 {"bf16", STRAIT_GGUF_BF16, 32},
                                 {"q8_0", STRAIT_GGUF_Q8_0, 7}};

struct gguf_export {
    strait_convert_notes notes;
    const format *format;
    const char *arch; // "llama", "qwen2" or "qwen3"
    struct strait_checkpoint *checkpoint;
    strait_run_plan plan;
    strait_hf_class class;
    struct strait_export_list list;
    struct strait_weights_source source;
    struct strait_gguf gguf;
    float *values, *permuted; // of the largest tensor
};

static strait_err choose_format(struct gguf_export *ex, const char *name) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, name) == 0) {
            ex->format = &formats[i];
            return STRAIT_OK;
        }
    return STRAIT_FAIL(STRAIT_ECONFIG,
                       "dtype \"%.20s\" is not known: expected f32, f16, bf16 or q8_0", name);
}

/* From the name in Hugging Face's classes to that in GGUF files. */
static int gguf_name(const char *name, char out[STRAIT_HF_NAME]) {
    static const struct {
        const char *theirs, *ours;
    } names[] = {{"input_layernorm", "attn_norm"},    {"self_attn.q_proj", "attn_q"},
                 {"self_attn.k_proj", "attn_k"},      {"self_attn.v_proj", "attn_v"},
                 {"self_attn.o_proj", "attn_output"}, {"self_attn.q_norm", "attn_q_norm"},
                 {"self_attn.k_norm", "attn_k_norm"}, {"post_attention_layernorm", "ffn_norm"},
                 {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
                 {"mlp.down_proj", "ffn_down"}};
    int block = 0, used = 0;
    if (strcmp(name, "model.embed_tokens.weight") == 0)
        return snprintf(out, STRAIT_HF_NAME, "token_embd.weight");
    if (strcmp(name, "model.norm.weight") == 0)
        return snprintf(out, STRAIT_HF_NAME, "output_norm.weight");
    if (strcmp(name, "lm_head.weight") == 0) return snprintf(out, STRAIT_HF_NAME, "output.weight");
    if (sscanf(name, "model.layers.%d.%n", &block, &used) != 1) return 0; // NOLINT(cert-err34-c)
    const char *rest = name + used, *end = strrchr(rest, '.');
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i].theirs) == (size_t)(end - rest) &&
            strncmp(names[i].theirs, rest, (size_t)(end - rest)) == 0)
            return snprintf(out, STRAIT_HF_NAME, "blk.%d.%s%s", block, names[i].ours, end);
    return 0;
}

/* Vectors are always f32, and so is what does not consist of whole blocks. */
static strait_gguf_type type_of(const struct gguf_export *ex, const strait_export_item *item) {
    if (item->rows == 1) return STRAIT_GGUF_F32;
    if (ex->format->type == STRAIT_GGUF_Q8_0 && item->cols % STRAIT_GGUF_BLOCK != 0)
        return STRAIT_GGUF_F16;
    return ex->format->type;
}

/* A key of this architecture: "llama.block_count". */
static strait_err arch_u32(struct gguf_export *ex, const char *key, int64_t value) {
    char full[96];
    (void)snprintf(full, sizeof full, "%s.%s", ex->arch, key);
    return strait_gguf_u32(&ex->gguf, full, (uint32_t)value);
}

static strait_err arch_f32(struct gguf_export *ex, const char *key, float value) {
    char full[96];
    (void)snprintf(full, sizeof full, "%s.%s", ex->arch, key);
    return strait_gguf_f32(&ex->gguf, full, value);
}

static strait_err add_rope(struct gguf_export *ex) {
    const strait_shape *s = &ex->plan.shape;
    char full[96];
    STRAIT_TRY(arch_u32(ex, "rope.dimension_count", s->head_dim));
    STRAIT_TRY(arch_f32(ex, "rope.freq_base", s->rope_theta));
    if (s->rope_scaling != STRAIT_ROPE_LINEAR) return STRAIT_OK; // llama3 is a tensor
    (void)snprintf(full, sizeof full, "%s.rope.scaling.type", ex->arch);
    STRAIT_TRY(strait_gguf_text(&ex->gguf, full, "linear"));
    return arch_f32(ex, "rope.scaling.factor", s->rope_factor);
}

static strait_err add_keys(struct gguf_export *ex) {
    const strait_shape *s = &ex->plan.shape;
    struct strait_gguf *g = &ex->gguf;
    STRAIT_TRY(strait_gguf_text(g, "general.architecture", ex->arch));
    STRAIT_TRY(strait_gguf_u32(g, "general.file_type", ex->format->file_type));
    STRAIT_TRY(strait_gguf_u32(g, "general.quantization_version", 2));
    STRAIT_TRY(arch_u32(ex, "block_count", s->layers));
    STRAIT_TRY(arch_u32(ex, "context_length", s->context));
    STRAIT_TRY(arch_u32(ex, "embedding_length", s->width));
    STRAIT_TRY(arch_u32(ex, "feed_forward_length", s->ffn));
    STRAIT_TRY(arch_u32(ex, "attention.head_count", s->heads));
    STRAIT_TRY(arch_u32(ex, "attention.head_count_kv", s->kv_heads));
    STRAIT_TRY(arch_u32(ex, "attention.key_length", s->head_dim));
    STRAIT_TRY(arch_u32(ex, "attention.value_length", s->head_dim));
    STRAIT_TRY(arch_f32(ex, "attention.layer_norm_rms_epsilon", s->norm_epsilon));
    STRAIT_TRY(arch_u32(ex, "vocab_size", s->vocab));
    return add_rope(ex);
}

static strait_err add_tokenizer(struct gguf_export *ex) {
    char run[STRAIT_PATH_MAX], path[STRAIT_PATH_MAX];
    struct strait_tokenizer *tokenizer = NULL;
    STRAIT_TRY(strait_convert_run_of(ex->checkpoint, run));
    STRAIT_TRY(strait_file_path(path, "%s/tokenizer.json", run));
    if (!strait_file_exists(path))
        return STRAIT_FAIL(STRAIT_EDATA, "%s: is missing, and a GGUF file needs it", path);
    STRAIT_TRY(strait_tokenizer_open(path, &tokenizer));
    const int32_t end = strait_tokenizer_end(tokenizer);
    strait_tokenizer_close(&tokenizer);
    return strait_gguf_tokenizer(&ex->gguf, path, ex->plan.shape.vocab, end);
}

/* Llama 3.1's scaling as one factor per pair, by which llama.cpp divides its angle. */
static void fill_factors(const strait_shape *s, float *out) {
    const int n = s->head_dim / 2;
    for (int i = 0; i < n; i++) {
        const double angle = pow((double)s->rope_theta, -(double)i / n);
        const double turns = (double)s->rope_original * angle / (2.0 * acos(-1.0));
        const double low = (double)s->rope_low, high = (double)s->rope_high;
        const double share = fmin(1.0, fmax(0.0, (turns - low) / (high - low)));
        out[i] = (float)(1.0 / ((1.0 - share) / (double)s->rope_factor + share));
    }
}

static int has_factors(const struct gguf_export *ex) {
    return ex->plan.shape.rope_scaling == STRAIT_ROPE_LLAMA3;
}

static strait_err describe_tensors(struct gguf_export *ex) {
    char name[STRAIT_HF_NAME];
    if (has_factors(ex))
        STRAIT_TRY(strait_gguf_tensor(&ex->gguf, "rope_freqs.weight", STRAIT_GGUF_F32, 1,
                                      ex->plan.shape.head_dim / 2));
    for (int i = 0; i < ex->list.n_items; i++) {
        const strait_export_item *item = &ex->list.items[i];
        if (gguf_name(item->name, name) == 0)
            return STRAIT_FAIL(STRAIT_ENOTSUP, "tensor %s has no name in GGUF files", item->name);
        STRAIT_TRY(strait_gguf_tensor(&ex->gguf, name, type_of(ex, item), item->rows, item->cols));
    }
    return STRAIT_OK;
}

/* In files of the architecture llama the two values of a pair are neighbours: rows i and
 * i + head_dim / 2 of a head become 2 i and 2 i + 1. */
static float *interleave(struct gguf_export *ex, const strait_export_item *item, float *values) {
    const int64_t p = ex->plan.shape.head_dim, cols = item->cols;
    const int is_rotated = strstr(item->name, "q_proj.weight") != NULL ||
                           strstr(item->name, "k_proj.weight") != NULL;
    if (ex->class != STRAIT_HF_LLAMA || !is_rotated) return values;
    for (int64_t row = 0; row < item->rows; row++) {
        const int64_t head = row / p * p, i = row % p;
        const int64_t to = head + (i < p / 2 ? 2 * i : 2 * (i - p / 2) + 1);
        memcpy(ex->permuted + to * cols, values + row * cols, (size_t)cols * sizeof *values);
    }
    return ex->permuted;
}

static strait_err write_item(struct gguf_export *ex, const strait_export_item *item, FILE *file) {
    const int64_t n = item->rows * item->cols;
    const strait_gguf_type type = type_of(ex, item);
    if (item->source[0] != '\0')
        STRAIT_TRY(strait_weights_source_read(&ex->source, item->source, item->source_rows,
                                              item->source_cols, ex->values));
    else
        for (int64_t v = 0; v < item->source_rows * item->source_cols; v++)
            ex->values[v] = 1.0f;
    float *values = ex->values + item->first;
    const int64_t bad = strait_floats_overflow(
        values, type == STRAIT_GGUF_F16 ? STRAIT_F16 : STRAIT_F32, n);
    if (bad >= 0)
        return STRAIT_FAIL(STRAIT_EDATA,
                           "tensor %s: value %lld does not fit into f16: use --dtype "
                           "bf16",
                           item->name, (long long)bad);
    strait_gguf_write_tensor(file, type, interleave(ex, item, values), n);
    return STRAIT_OK;
}

static strait_err write_all(struct gguf_export *ex, FILE *file) {
    strait_gguf_write_header(&ex->gguf, file);
    if (has_factors(ex)) {
        fill_factors(&ex->plan.shape, ex->values);
        strait_gguf_write_tensor(file, STRAIT_GGUF_F32, ex->values, ex->plan.shape.head_dim / 2);
    }
    for (int i = 0; i < ex->list.n_items; i++)
        ex->notes.total += ex->list.items[i].rows * ex->list.items[i].cols;
    for (int i = 0; i < ex->list.n_items && !ferror(file); i++) {
        const strait_export_item *item = &ex->list.items[i];
        STRAIT_TRY(strait_convert_advance(&ex->notes, item->rows * item->cols));
        STRAIT_TRY(write_item(ex, item, file));
    }
    return STRAIT_OK;
}

/* Written beside the target and renamed. */
static strait_err write_file(struct gguf_export *ex, const char *out) {
    char path[STRAIT_PATH_MAX], why[128] = "";
    STRAIT_TRY(strait_file_path(path, "%s", out));
    char *slash = strrchr(path, '/');
    if (slash != NULL && slash != path) {
        *slash = '\0';
        STRAIT_TRY(strait_file_make_folders(path));
    }
    STRAIT_TRY(strait_file_path(path, "%s.tmp", out));
    FILE *file = fopen(path, "wbe");
    if (file == NULL) {
        (void)strerror_r(errno, why, sizeof why);
        return STRAIT_FAIL(STRAIT_EIO, "%s: cannot create: %s", path, why);
    }
    strait_err err = write_all(ex, file);
    if (err == STRAIT_OK)
        err = strait_file_finish(&file, path);
    else
        (void)fclose(file);
    if (err == STRAIT_OK) return strait_file_move(path, out);
    (void)unlink(path);
    return err;
}

static strait_err reserve(struct gguf_export *ex) {
    int64_t most = ex->plan.shape.head_dim;
    for (int i = 0; i < ex->list.n_items; i++) {
        const int64_t n = ex->list.items[i].source_rows * ex->list.items[i].source_cols;
        if (n > most) most = n;
    }
    const int64_t rotated = ex->class == STRAIT_HF_LLAMA
                                ? strait_shape_attention_cols(&ex->plan.shape) *
                                      ex->plan.shape.width
                                : 1;
    STRAIT_TRY(strait_alloc_unset((size_t)rotated, sizeof *ex->permuted, "values of a tensor",
                                  (void **)&ex->permuted));
    return strait_alloc_unset((size_t)most, sizeof *ex->values, "values of a tensor",
                              (void **)&ex->values);
}

static strait_err convert(struct gguf_export *ex, const char *run, const char *out,
                          const char *dtype) {
    STRAIT_TRY(choose_format(ex, dtype));
    STRAIT_TRY(strait_checkpoint_open(run, STRAIT_CHECKPOINT_NEWEST_VALID, &ex->checkpoint));
    STRAIT_TRY(strait_describe_read(ex->checkpoint, &ex->plan));
    ex->class = strait_export_class(&ex->plan);
    if (ex->class == STRAIT_HF_STRAIT)
        return STRAIT_FAIL(
            STRAIT_ENOTSUP,
            "llama.cpp has no architecture for this model: it has a trained codec or "
            "a part that Llama, Qwen2 and Qwen3 lack; --to hf brings its own code");
    ex->arch = strait_hf_class_model_type(ex->class);
    STRAIT_TRY(strait_export_list_init(ex->checkpoint, &ex->plan, ex->class, &ex->list));
    STRAIT_TRY(strait_weights_source_open(ex->checkpoint, &ex->plan, &ex->source));
    STRAIT_TRY(add_keys(ex));
    STRAIT_TRY(add_tokenizer(ex));
    STRAIT_TRY(describe_tensors(ex));
    STRAIT_TRY(reserve(ex));
    STRAIT_TRY(write_file(ex, out));
    strait_convert_say(&ex->notes, "%s: %d tensors of architecture %s in %s, step %lld", out,
                       ex->list.n_items, ex->arch, dtype,
                       (long long)strait_checkpoint_step(ex->checkpoint));
    return STRAIT_OK;
}

strait_err strait_export_gguf(const char *run, const char *out, const strait_export_params *params,
                              strait_convert_note note, void *user) {
    static const strait_export_params none = {0};
    struct gguf_export *ex = NULL;
    char path[STRAIT_PATH_MAX];
    if (params == NULL) params = &none;
    STRAIT_TRY(strait_convert_target(out, "file", path));
    STRAIT_TRY(strait_alloc(1, sizeof *ex, "export", (void **)&ex));
    ex->notes = (strait_convert_notes){.note = note, .user = user, .progress = params->progress};
    const strait_err err = convert(ex, run, path, params->dtype != NULL ? params->dtype : "f16");
    strait_weights_source_close(&ex->source);
    strait_export_list_fini(&ex->list);
    strait_checkpoint_close(&ex->checkpoint);
    strait_gguf_fini(&ex->gguf);
    strait_alloc_free(ex->values);
    strait_alloc_free(ex->permuted);
    strait_alloc_free(ex);
    return err;
}
