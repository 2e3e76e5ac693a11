#include "convert/gguf/format.h"

#include "base/alloc.h"
#include "convert/floats.h"

#include <math.h>
#include <string.h>

/* Types of values, as the format numbers them. */
enum {
    VALUE_U32 = 4,
    VALUE_I32 = 5,
    VALUE_F32 = 6,
    VALUE_BOOL = 7,
    VALUE_TEXT = 8,
    VALUE_LIST = 9
};

void strait_gguf_fini(struct strait_gguf *g) {
    strait_alloc_free(g->keys.data);
    strait_alloc_free(g->tensors.data);
    *g = (struct strait_gguf){0};
}

static strait_err put_number(strait_buffer *to, uint64_t value, size_t bytes) {
    unsigned char out[8];
    for (size_t i = 0; i < bytes; i++)
        out[i] = (unsigned char)(value >> (8 * i));
    return strait_buffer_append(to, out, bytes);
}

static strait_err put_text(strait_buffer *to, const char *text, size_t bytes) {
    STRAIT_TRY(put_number(to, bytes, 8));
    return strait_buffer_append(to, text, bytes);
}

static strait_err begin_key(struct strait_gguf *g, const char *key, uint32_t type) {
    g->n_keys++;
    STRAIT_TRY(put_text(&g->keys, key, strlen(key)));
    return put_number(&g->keys, type, 4);
}

strait_err strait_gguf_u32(struct strait_gguf *g, const char *key, uint32_t value) {
    STRAIT_TRY(begin_key(g, key, VALUE_U32));
    return put_number(&g->keys, value, 4);
}

strait_err strait_gguf_f32(struct strait_gguf *g, const char *key, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    STRAIT_TRY(begin_key(g, key, VALUE_F32));
    return put_number(&g->keys, bits, 4);
}

strait_err strait_gguf_bool(struct strait_gguf *g, const char *key, int value) {
    STRAIT_TRY(begin_key(g, key, VALUE_BOOL));
    return put_number(&g->keys, value != 0, 1);
}

strait_err strait_gguf_text(struct strait_gguf *g, const char *key, const char *value) {
    STRAIT_TRY(begin_key(g, key, VALUE_TEXT));
    return put_text(&g->keys, value, strlen(value));
}

static strait_err begin_list(struct strait_gguf *g, const char *key, uint32_t type, uint64_t n) {
    STRAIT_TRY(begin_key(g, key, VALUE_LIST));
    STRAIT_TRY(put_number(&g->keys, type, 4));
    return put_number(&g->keys, n, 8);
}

strait_err strait_gguf_texts(struct strait_gguf *g, const char *key, uint64_t n) {
    return begin_list(g, key, VALUE_TEXT, n);
}

strait_err strait_gguf_item_text(struct strait_gguf *g, const char *text, size_t bytes) {
    return put_text(&g->keys, text, bytes);
}

strait_err strait_gguf_numbers(struct strait_gguf *g, const char *key, uint64_t n) {
    return begin_list(g, key, VALUE_I32, n);
}

strait_err strait_gguf_item_number(struct strait_gguf *g, int32_t value) {
    return put_number(&g->keys, (uint32_t)value, 4);
}

uint64_t strait_gguf_bytes(strait_gguf_type type, int64_t n) {
    switch (type) {
    case STRAIT_GGUF_F32: return 4 * (uint64_t)n;
    case STRAIT_GGUF_Q8_0: return (uint64_t)n / STRAIT_GGUF_BLOCK * (2 + STRAIT_GGUF_BLOCK);
    default: return 2 * (uint64_t)n;
    }
}

static uint64_t padded(uint64_t bytes) {
    return (bytes + STRAIT_GGUF_ALIGN - 1) / STRAIT_GGUF_ALIGN * STRAIT_GGUF_ALIGN;
}

/* Dimensions are written from the fastest to the slowest. */
strait_err strait_gguf_tensor(struct strait_gguf *g, const char *name, strait_gguf_type type,
                              int64_t rows, int64_t cols) {
    STRAIT_TRY(put_text(&g->tensors, name, strlen(name)));
    STRAIT_TRY(put_number(&g->tensors, rows == 1 ? 1 : 2, 4));
    STRAIT_TRY(put_number(&g->tensors, (uint64_t)cols, 8));
    if (rows > 1) STRAIT_TRY(put_number(&g->tensors, (uint64_t)rows, 8));
    STRAIT_TRY(put_number(&g->tensors, (uint64_t)type, 4));
    STRAIT_TRY(put_number(&g->tensors, g->data_bytes, 8));
    g->n_tensors++;
    g->data_bytes += padded(strait_gguf_bytes(type, rows * cols));
    return STRAIT_OK;
}

static void pad(FILE *file, uint64_t bytes) {
    for (uint64_t i = bytes; i < padded(bytes); i++)
        (void)putc(0, file);
}

static void write_number(FILE *file, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++)
        (void)putc((int)(value >> (8 * i) & 0xff), file);
}

void strait_gguf_write_header(const struct strait_gguf *g, FILE *file) {
    (void)fwrite("GGUF", 1, 4, file);
    write_number(file, 3, 4);
    write_number(file, g->n_tensors, 8);
    write_number(file, g->n_keys, 8);
    if (g->keys.n > 0) (void)fwrite(g->keys.data, 1, g->keys.n, file);
    if (g->tensors.n > 0) (void)fwrite(g->tensors.data, 1, g->tensors.n, file);
    pad(file, 24 + g->keys.n + g->tensors.n);
}

/* One block: the scale maps the largest value to 127. Rounded to nearest, away from zero in the
 * middle, as ggml does. */
static void write_block(FILE *file, const float *values) {
    unsigned char out[2 + STRAIT_GGUF_BLOCK];
    float most = 0.0f;
    for (int i = 0; i < STRAIT_GGUF_BLOCK; i++)
        most = fmaxf(most, fabsf(values[i]));
    const float scale = most / 127.0f, inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    strait_floats_narrow(out, &scale, STRAIT_F16, 1);
    for (int i = 0; i < STRAIT_GGUF_BLOCK; i++)
        out[2 + i] = (unsigned char)(signed char)roundf(values[i] * inverse);
    (void)fwrite(out, 1, sizeof out, file);
}

void strait_gguf_write_tensor(FILE *file, strait_gguf_type type, float *values, int64_t n) {
    const uint64_t bytes = strait_gguf_bytes(type, n);
    if (type == STRAIT_GGUF_Q8_0) {
        for (int64_t i = 0; i < n; i += STRAIT_GGUF_BLOCK)
            write_block(file, values + i);
    } else {
        if (type != STRAIT_GGUF_F32)
            strait_floats_narrow((unsigned char *)values, values,
                                 type == STRAIT_GGUF_F16 ? STRAIT_F16 : STRAIT_BF16, n);
        (void)fwrite(values, 1, bytes, file);
    }
    pad(file, bytes);
}
