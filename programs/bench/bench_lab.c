#include "base/alloc.h"
#include "base/clock.h"
#include "base/rng/rng.h"
#include "bench.h"

#include <stdlib.h>
#include <string.h>

enum {
    WARM_CALLS = 3,
    MOST_CALLS = 2000, // in a batch
    CHUNK = 1 << 18,   // random values generated at a time
    LOGIT_BYTES = 1 << 28
};

#define BATCH_SECONDS 0.01 // duration of a batch of calls

strait_err strait_lab_open(struct strait_lab *lab, const strait_run *run, int repeats) {
    *lab = (struct strait_lab){.repeats = repeats};
    STRAIT_TRY(strait_run_plan_init(run, run->model.vocab, &lab->plan));
    STRAIT_TRY(strait_backend_open(strait_run_plan_backend(run, 0), &lab->backend));
    lab->k = lab->backend->kernels;
    lab->rows = lab->plan.microbatch * lab->plan.shape.context;
    lab->dtype = lab->plan.shape.precision;
    return lab->backend->ops->stream_open(lab->backend, &lab->stream);
}

void strait_lab_close(struct strait_lab *lab) {
    strait_lab_clear(lab);
    if (lab->stream.backend != NULL) lab->backend->ops->stream_close(&lab->stream);
    strait_backend_close(&lab->backend);
}

/* Leaves the device open, which takes seconds on a GPU. */
void strait_lab_clear(struct strait_lab *lab) {
    strait_slab_fini(&lab->slab);
    lab->slab = (struct strait_slab){0};
    lab->n = 0;
    lab->bytes = lab->flops = 0;
}

/* Sizes of codes follow the codec strait: keep is chosen as its default at 128x. */
int64_t strait_lab_size(const struct strait_lab *lab, char letter) {
    const strait_shape *s = &lab->plan.shape;
    const int64_t keep = s->width / 32 > 1 ? s->width / 32 - 1 : 1, pad = (keep + 7) / 8 * 8;
    const int64_t at_once = LOGIT_BYTES / s->vocab, top = s->width / 16 > 0 ? s->width / 16 : 1;
    switch (letter) {
    case 'n': return lab->rows;
    case 'l': return lab->rows < at_once ? lab->rows : at_once;
    case 'd': return s->width;
    case 'q': return strait_shape_qkv_cols(s);
    case 'x': return strait_shape_attention_cols(s);
    case 'h': return strait_shape_mlp_cols(s);
    case 'c': return (int64_t)s->kv_heads * s->head_dim;
    case 'f': return s->ffn;
    case 'j': return 2 * (int64_t)s->ffn;
    case 'v': return s->vocab;
    case 's': return s->context;
    case 'p': return s->head_dim / 2;
    case 'g': return s->heads;
    case 'e': return s->heads + s->kv_heads;
    case 'r': return 16;
    case 't': return STRAIT_CONV_TAPS;
    case 'k': return keep;
    case 'K': return pad;
    case 'w': return 4 * pad;
    case 'm': return 512;
    case 'u': return 4 * pad + 512;
    case 'o': return 4 + lab->rows * ((keep + 2) / 2);
    case 'y': return lab->rows * keep * 2;
    case 'z': return lab->rows * top * 4;
    default: return letter - '0';
    }
}

/* The letter 'a' is the type of activations, which depends on the device. */
static strait_dtype type_of(const struct strait_lab *lab, char letter) {
    switch (letter) {
    case 'a': return lab->dtype;
    case 'f': return STRAIT_F32;
    case 'i': return STRAIT_I32;
    default: return STRAIT_I8;
    }
}

/* Four letters per tensor: how often it is moved per call, type, rows, columns. */
strait_err strait_lab_plan(struct strait_lab *lab, const char *text) {
    for (const char *at = text; *at != '\0'; at += at[4] == ' ' ? 5 : 4) {
        const strait_dtype dtype = type_of(lab, at[1]);
        const int64_t rows = strait_lab_size(lab, at[2]), cols = strait_lab_size(lab, at[3]);
        if (lab->n == STRAIT_LAB_TENSORS) return STRAIT_FAIL(STRAIT_EINVAL, "too many tensors");
        lab->bytes += (double)(rows * cols) * (double)strait_dtype_bytes(dtype) * (at[0] - '0');
        STRAIT_TRY(strait_slab_add(&lab->slab, dtype, rows, cols, &lab->t[lab->n++]));
    }
    return STRAIT_OK;
}

/* Random values of one chunk, in the representation of this type. */
static void generate(void *to, strait_dtype dtype, int64_t vocab) {
    const strait_rng rng = {1, strait_rng_stream("bench")};
    float *floats = to;
    if (dtype == STRAIT_I32) {
        for (int i = 0; i < CHUNK; i++)
            ((int32_t *)to)[i] = (int32_t)(strait_rng_u64(rng, (uint64_t)i) % (uint64_t)vocab);
        return;
    }
    strait_rng_normals(rng, 0, floats, CHUNK);
    for (int i = 0; dtype == STRAIT_BF16 && i < CHUNK; i++) {
        uint32_t bits;
        memcpy(&bits, &floats[i], sizeof bits);
        ((uint16_t *)to)[i] = (uint16_t)(bits >>
                                         16); // in place: element i never overlaps a float after i
    }
}

static strait_err fill_tensor(struct strait_lab *lab, strait_tensor t, void *chunk_values) {
    const struct strait_backend_ops *ops = lab->backend->ops;
    const size_t all = strait_tensor_bytes(t), chunk = CHUNK * strait_dtype_bytes(t.dtype);
    if (t.dtype == STRAIT_I8) return STRAIT_OK; // bytes of the wire, which a kernel writes
    generate(chunk_values, t.dtype, lab->plan.shape.vocab);
    for (size_t at = 0; at < all; at += chunk)
        STRAIT_TRY(ops->upload(&lab->stream, (char *)t.data + at, chunk_values,
                               all - at < chunk ? all - at : chunk));
    return ops->wait(&lab->stream); // the buffer is reused for the next tensor
}

/* Random values, because kernels may be faster on zeros. */
strait_err strait_lab_make(struct strait_lab *lab) {
    void *values = NULL;
    STRAIT_TRY(strait_slab_commit(&lab->slab, lab->backend));
    STRAIT_TRY(strait_alloc(CHUNK, sizeof(float), "random values", &values));
    strait_err err = STRAIT_OK;
    for (int i = 0; i < lab->n && err == STRAIT_OK; i++)
        err = fill_tensor(lab, lab->t[i], values);
    strait_alloc_free(values);
    return err;
}

/* One wait per batch: waiting after every call would measure the wait. */
static strait_err call_batch(struct strait_lab *lab, strait_lab_call *call, void *arg, int n,
                             double *out) {
    const double began = strait_clock_seconds();
    for (int i = 0; i < n; i++)
        STRAIT_TRY(call(lab, arg));
    STRAIT_TRY(lab->backend->ops->wait(&lab->stream));
    *out = (strait_clock_seconds() - began) / n;
    return STRAIT_OK;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Estimates the duration of one call first, to choose the length of a batch. */
strait_err strait_lab_measure(struct strait_lab *lab, strait_lab_call *call, void *arg,
                              strait_lab_time *out) {
    double once = 0, *seconds = NULL;
    STRAIT_TRY(call_batch(lab, call, arg, WARM_CALLS, &once));
    STRAIT_TRY(call_batch(lab, call, arg, 1, &once));
    const double wanted = once > 0 ? BATCH_SECONDS / once : 1;
    const int n = wanted < 1 ? 1 : wanted > MOST_CALLS ? MOST_CALLS : (int)wanted;
    STRAIT_TRY(strait_alloc((size_t)lab->repeats, sizeof *seconds, "times", (void **)&seconds));
    strait_err err = STRAIT_OK;
    for (int i = 0; i < lab->repeats && err == STRAIT_OK; i++)
        err = call_batch(lab, call, arg, n, &seconds[i]);
    if (err == STRAIT_OK) {
        qsort(seconds, (size_t)lab->repeats, sizeof *seconds, by_value);
        *out = (strait_lab_time){seconds[lab->repeats / 2], seconds[0], seconds[lab->repeats - 1]};
    }
    strait_alloc_free(seconds);
    return err;
}
