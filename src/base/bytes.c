#include "base/bytes.h"

#include <string.h>

/* Byte by byte, so that the result is little-endian on every machine and needs no alignment. */
static void put(unsigned char *out, uint64_t value, int n_bytes) {
    for (int i = 0; i < n_bytes; i++)
        out[i] = (unsigned char)(value >> (8 * i));
}

static uint64_t get(const unsigned char *in, int n_bytes) {
    uint64_t value = 0;
    for (int i = 0; i < n_bytes; i++)
        value |= (uint64_t)in[i] << (8 * i);
    return value;
}

void strait_put_u16(unsigned char *out, uint16_t value) {
    put(out, value, 2);
}

void strait_put_u32(unsigned char *out, uint32_t value) {
    put(out, value, 4);
}

void strait_put_u64(unsigned char *out, uint64_t value) {
    put(out, value, 8);
}

uint16_t strait_get_u16(const unsigned char *in) {
    return (uint16_t)get(in, 2);
}

uint32_t strait_get_u32(const unsigned char *in) {
    return (uint32_t)get(in, 4);
}

uint64_t strait_get_u64(const unsigned char *in) {
    return get(in, 8);
}

uint64_t strait_reader_uint(strait_reader *r, int n_bytes) {
    unsigned char raw[8] = {0};
    strait_reader_copy(r, raw, (size_t)n_bytes);
    return strait_get_u64(raw);
}

/* After a short read everything that follows reads as 0. Callers check is_short once, at the end.
 */
void strait_reader_copy(strait_reader *r, void *out, size_t bytes) {
    if (bytes > r->left) {
        r->is_short = 1;
        r->left = 0;
        memset(out, 0, bytes);
        return;
    }
    if (bytes == 0) return; // `out` may then be NULL
    memcpy(out, r->at, bytes);
    r->at += bytes;
    r->left -= bytes;
}

void strait_writer_uint(strait_writer *w, uint64_t value, int n_bytes) {
    unsigned char raw[8];
    strait_put_u64(raw, value);
    strait_writer_copy(w, raw, (size_t)n_bytes);
}

/* Nothing is written in part: a writer that ran out of space stays unusable. */
void strait_writer_copy(strait_writer *w, const void *data, size_t bytes) {
    if (bytes > w->left) {
        w->is_short = 1;
        w->left = 0;
        return;
    }
    if (bytes == 0) return;
    memcpy(w->at, data, bytes);
    w->at += bytes;
    w->left -= bytes;
}

/* Through the bits, because the bytes on the wire are those of IEEE 754. */
float strait_reader_float(strait_reader *r) {
    const uint32_t bits = (uint32_t)strait_reader_uint(r, 4);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

double strait_reader_real(strait_reader *r) {
    const uint64_t bits = strait_reader_uint(r, 8);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A text that does not fit is an error of the sender, never truncated. */
void strait_reader_text(strait_reader *r, int n_bytes, char *out, size_t capacity) {
    size_t n = (size_t)strait_reader_uint(r, n_bytes);
    if (n >= capacity) {
        r->is_short = 1;
        n = 0;
    }
    strait_reader_copy(r, out, n);
    out[n] = '\0';
    if (strlen(out) != n) { // a zero inside would hide what follows it
        r->is_short = 1;
        out[0] = '\0';
    }
}

void strait_writer_float(strait_writer *w, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    strait_writer_uint(w, bits, 4);
}

void strait_writer_real(strait_writer *w, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    strait_writer_uint(w, bits, 8);
}

/* The length must fit into n_bytes. */
void strait_writer_text(strait_writer *w, int n_bytes, const char *text) {
    const size_t n = strlen(text);
    strait_writer_uint(w, n, n_bytes);
    strait_writer_copy(w, text, n);
}
