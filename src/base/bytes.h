/* bytes.h - bounded reading and writing of little-endian numbers and texts.
 *
 * A reader or writer that would pass the end of its buffer stops and sets is_short, so that callers
 * check once at the end instead of after every field. Both work on the caller's memory. */
#pragma once

#include <stddef.h>
#include <stdint.h>

void strait_put_u16(unsigned char *out, uint16_t value);
void strait_put_u32(unsigned char *out, uint32_t value);
void strait_put_u64(unsigned char *out, uint64_t value);
uint16_t strait_get_u16(const unsigned char *in);
uint32_t strait_get_u32(const unsigned char *in);
uint64_t strait_get_u64(const unsigned char *in);

typedef struct strait_reader {
    const unsigned char *at;
    size_t left;
    int is_short; // a read went past the end
} strait_reader;

uint64_t strait_reader_uint(strait_reader *r, int n_bytes);         // 0 when short; n_bytes 1 to 8
void strait_reader_copy(strait_reader *r, void *out, size_t bytes); // zeros when short
float strait_reader_float(strait_reader *r);                        // the IEEE 754 bits
double strait_reader_real(strait_reader *r);                        // the IEEE 754 bits
/* Reads a text that follows its length in n_bytes, and terminates it with a zero. A text of more
 * than capacity - 1 bytes, or one with a zero inside, sets is_short and leaves `out` empty. */
void strait_reader_text(strait_reader *r, int n_bytes, char *out, size_t capacity);

typedef struct strait_writer {
    unsigned char *at;
    size_t left;
    int is_short; // a write did not fit
} strait_writer;

void strait_writer_uint(strait_writer *w, uint64_t value, int n_bytes);
void strait_writer_copy(strait_writer *w, const void *data, size_t bytes);
void strait_writer_float(strait_writer *w, float value);
void strait_writer_real(strait_writer *w, double value);
/* Writes the length in n_bytes, then the text without its terminating zero. */
void strait_writer_text(strait_writer *w, int n_bytes, const char *text);
