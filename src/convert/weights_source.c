#include "convert/weights_source.h"

#include "base/alloc.h"
#include "codec/basis.h"
#include "model/parts/lora.h"
#include "stage/runner_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Opens the sender of the first boundary with its saved state: every side holds the same basis. */
static strait_err open_basis(struct strait_checkpoint *checkpoint,
                             struct strait_weights_source *s) {
    strait_codec_spec spec = strait_run_plan_codec(s->plan, 0, 1);
    spec.rows = spec.seq_len = s->plan->shape.context;
    STRAIT_TRY(strait_codec_check(&spec));
    STRAIT_TRY(
        strait_backend_open((strait_backend_spec){.name = "cpu", .n_threads = 1}, &s->backend));
    STRAIT_TRY(s->backend->ops->stream_open(s->backend, &s->stream));
    s->has_stream = 1;
    STRAIT_TRY(strait_codec_open(&spec, STRAIT_SENDER, s->backend, &s->codec));
    STRAIT_TRY(strait_codec_join(NULL, s->codec));
    STRAIT_TRY(strait_runner_state_read_codec(checkpoint, s->codec, &s->stream));
    return strait_codec_basis_view(s->codec, &s->basis, &s->fixed);
}

strait_err strait_weights_source_open(struct strait_checkpoint *checkpoint,
                                      const strait_run_plan *plan,
                                      struct strait_weights_source *s) {
    s->checkpoint = checkpoint;
    s->plan = plan;
    if (plan->shape.subspace == 0 || plan->n_stages < 2) return STRAIT_OK;
    return open_basis(checkpoint, s);
}

void strait_weights_source_close(struct strait_weights_source *s) {
    strait_codec_close(&s->codec);
    if (s->has_stream) s->backend->ops->stream_close(&s->stream);
    strait_backend_close(&s->backend);
    *s = (struct strait_weights_source){0};
}

int strait_weights_source_is_confined(const strait_run_plan *plan, const char *name) {
    const int first_free = plan->stage_layers[plan->n_stages - 1].first;
    if (strcmp(name, "embed.table") == 0) return 1;
    const char *dot = strncmp(name, "blocks.", 7) == 0 ? strchr(name + 7, '.') : NULL;
    if (dot == NULL || (int)strtol(name + 7, NULL, 10) >= first_free) return 0;
    return strcmp(dot, ".attention.out") == 0 || strcmp(dot, ".mlp.down") == 0;
}

/* Whether a tensor is stored as coordinates. */
static int has_coordinates(const struct strait_weights_source *s, const char *name) {
    return s->basis.data != NULL && strait_weights_source_is_confined(s->plan, name);
}

void strait_weights_source_shape(const struct strait_weights_source *s, const char *name,
                                 int64_t *rows, int64_t *cols) {
    if (!has_coordinates(s, name)) return;
    if (strcmp(name, "embed.table") == 0)
        *cols = s->basis.rows;
    else
        *rows = s->basis.rows;
}

/* out [rows x cols] = basis [rows x k] times code [k x cols]. */
static void expand_rows(strait_tensor basis, const float *code, int64_t cols, float *out) {
    const float *u = basis.data;
    for (int64_t r = 0; r < basis.rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            double sum = 0;
            for (int64_t k = 0; k < basis.cols; k++)
                sum += (double)u[r * basis.cols + k] * (double)code[k * cols + c];
            out[r * cols + c] = (float)sum;
        }
}

/* out [rows x d] = fixed [rows x d] + code [rows x k] times basis'. */
static void expand_table(strait_tensor basis, strait_tensor fixed, const float *code, float *out) {
    const float *u = basis.data, *base = fixed.data;
    const int64_t d = basis.rows, k = basis.cols;
    for (int64_t r = 0; r < fixed.rows; r++)
        for (int64_t c = 0; c < d; c++) {
            double sum = (double)base[r * d + c];
            for (int64_t j = 0; j < k; j++)
                sum += (double)code[r * k + j] * (double)u[c * k + j];
            out[r * d + c] = (float)sum;
        }
}

/* Reads the coordinates and multiplies them out. */
static strait_err read_expanded(const struct strait_weights_source *s, const char *name,
                                int64_t rows, int64_t cols, float *out) {
    const int is_table = strcmp(name, "embed.table") == 0;
    const int64_t k = s->basis.cols;
    strait_tensor code = {NULL, STRAIT_F32, is_table ? rows : k, is_table ? k : cols};
    STRAIT_TRY(strait_alloc_unset(1, strait_tensor_bytes(code), name, &code.data));
    const strait_err err = strait_checkpoint_read(s->checkpoint, name, code);
    if (err == STRAIT_OK && is_table) expand_table(s->basis, s->fixed, code.data, out);
    if (err == STRAIT_OK && !is_table) expand_rows(s->basis, code.data, cols, out);
    strait_alloc_free(code.data);
    return err;
}

/* out [rows x cols] += scale B A. */
static void add_product(const float *a, const float *b, double scale, strait_tensor out, int rank) {
    float *values = out.data;
    for (int64_t r = 0; r < out.rows; r++)
        for (int64_t c = 0; c < out.cols; c++) {
            double sum = 0;
            for (int64_t k = 0; k < rank; k++)
                sum += (double)b[r * rank + k] * (double)a[k * out.cols + c];
            values[r * out.cols + c] = (float)((double)values[r * out.cols + c] + scale * sum);
        }
}

/* Adds the adapter of a matrix that has one. */
static strait_err merge_adapter(const struct strait_weights_source *s, const char *name,
                                strait_tensor out) {
    const int rank = s->plan->shape.lora_rank;
    char side[STRAIT_PARAM_NAME + 8];
    float *a = NULL, *b = NULL;
    if (strait_lora_target_of(&s->plan->shape, name) < 0) return STRAIT_OK;
    strait_err err = strait_alloc_unset((size_t)(rank * out.cols), sizeof *a, name, (void **)&a);
    if (err == STRAIT_OK)
        err = strait_alloc_unset((size_t)(rank * out.rows), sizeof *b, name, (void **)&b);
    (void)snprintf(side, sizeof side, "%.56s.lora_a", name);
    if (err == STRAIT_OK)
        err = strait_checkpoint_read(s->checkpoint, side,
                                     (strait_tensor){a, STRAIT_F32, rank, out.cols});
    (void)snprintf(side, sizeof side, "%.56s.lora_b", name);
    if (err == STRAIT_OK)
        err = strait_checkpoint_read(s->checkpoint, side,
                                     (strait_tensor){b, STRAIT_F32, out.rows, rank});
    if (err == STRAIT_OK) add_product(a, b, (double)strait_lora_scale(&s->plan->shape), out, rank);
    strait_alloc_free(a);
    strait_alloc_free(b);
    return err;
}

int strait_weights_source_is_adapter(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot != NULL && (strcmp(dot, ".lora_a") == 0 || strcmp(dot, ".lora_b") == 0);
}

strait_err strait_weights_source_read(const struct strait_weights_source *s, const char *name,
                                      int64_t rows, int64_t cols, float *out) {
    const strait_tensor tensor = {out, STRAIT_F32, rows, cols};
    if (has_coordinates(s, name)) return read_expanded(s, name, rows, cols, out);
    STRAIT_TRY(strait_checkpoint_read(s->checkpoint, name, tensor));
    return merge_adapter(s, name, tensor);
}

/* Our own files are aligned; one that is not is copied. */
const float *strait_weights_source_view(const struct strait_weights_source *s, const char *name,
                                        int64_t rows, int64_t cols) {
    const strait_tensor shape = {NULL, STRAIT_F32, rows, cols};
    const unsigned char *values = NULL;
    if (has_coordinates(s, name) || strait_lora_target_of(&s->plan->shape, name) >= 0 ||
        strait_checkpoint_view(s->checkpoint, name, shape, &values) != STRAIT_OK ||
        (uintptr_t)values % sizeof(float) != 0)
        return NULL;
    return (const float *)(const void *)values;
}
