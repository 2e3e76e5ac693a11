#include "metrics/tensorboard.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    EVENT_BYTES = 1024,
    /* Fields of Event, Summary and Summary.Value: number << 3 | wire type. */
    EVENT_TIME = 1 << 3 | 1,
    EVENT_STEP = 2 << 3 | 0,
    EVENT_VERSION = 3 << 3 | 2,
    EVENT_SUMMARY = 5 << 3 | 2,
    SUMMARY_VALUE = 1 << 3 | 2,
    VALUE_TAG = 1 << 3 | 2,
    VALUE_NUMBER = 2 << 3 | 5
};

struct strait_tensorboard {
    FILE *file;
    char path[STRAIT_PATH_MAX];
    uint32_t table[256]; // of CRC-32C, byte by byte
};

/* A message being written. */
typedef struct event {
    unsigned char bytes[EVENT_BYTES];
    size_t n;
} event;

static void put_bytes(event *e, const void *data, size_t bytes) {
    if (bytes > sizeof e->bytes - e->n) return; // all events of this file are far shorter
    memcpy(e->bytes + e->n, data, bytes);
    e->n += bytes;
}

static void put_byte(event *e, unsigned value) {
    const unsigned char byte = (unsigned char)value;
    put_bytes(e, &byte, 1);
}

static void put_varint(event *e, uint64_t value) {
    for (; value >= 128; value >>= 7)
        put_byte(e, (unsigned)(value & 127) | 128U);
    put_byte(e, (unsigned)value);
}

static void put_text(event *e, unsigned field, const void *text, size_t bytes) {
    put_byte(e, field);
    put_varint(e, bytes);
    put_bytes(e, text, bytes);
}

/* Little-endian, as protocol buffers have them. */
static void put_number(event *e, uint64_t bits, int bytes) {
    for (int i = 0; i < bytes; i++)
        put_byte(e, (unsigned)(bits >> (8 * i) & 255));
}

/* The Castagnoli polynomial, reflected. */
static void fill_table(uint32_t table[256]) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ ((crc & 1U) != 0 ? 0x82f63b78U : 0U);
        table[i] = crc;
    }
}

/* TensorFlow masks checksums, so that a file of checksummed records can be a record itself. */
static uint32_t masked_crc(const struct strait_tensorboard *b, const unsigned char *data,
                           size_t bytes) {
    uint32_t crc = 0xffffffffU;
    for (size_t i = 0; i < bytes; i++)
        crc = b->table[(crc ^ data[i]) & 255U] ^ crc >> 8;
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8U;
}

static strait_err failed(const struct strait_tensorboard *b, const char *what) {
    char why[128] = "";
    (void)strerror_r(errno, why, sizeof why);
    return STRAIT_FAIL(STRAIT_EIO, "%s: cannot %s: %s", b->path, what, why);
}

/* Each record is written at once, so that a reader of the running run rarely sees half of one. */
static strait_err append(struct strait_tensorboard *b, const event *e) {
    event record = {.n = 0};
    put_number(&record, e->n, 8);
    put_number(&record, masked_crc(b, record.bytes, 8), 4);
    put_bytes(&record, e->bytes, e->n);
    put_number(&record, masked_crc(b, e->bytes, e->n), 4);
    if (fwrite(record.bytes, 1, record.n, b->file) != record.n || fflush(b->file) != 0)
        return failed(b, "write");
    return STRAIT_OK;
}

static void begin(event *e, double time, int64_t step) {
    uint64_t bits = 0;
    memcpy(&bits, &time, sizeof bits);
    put_byte(e, EVENT_TIME);
    put_number(e, bits, 8);
    put_byte(e, EVENT_STEP);
    put_varint(e, (uint64_t)step);
}

static void put_value(event *summary, const char *tag, double number) {
    event value = {.n = 0};
    const float single = (float)number;
    uint32_t bits = 0;
    memcpy(&bits, &single, sizeof bits);
    put_text(&value, VALUE_TAG, tag, strlen(tag));
    put_byte(&value, VALUE_NUMBER);
    put_number(&value, bits, 4);
    put_text(summary, SUMMARY_VALUE, value.bytes, value.n);
}

static strait_err open_file(struct strait_tensorboard *b, const char *folder) {
    static const char version[] = "brain.Event:2";
    event e = {.n = 0};
    const double now = strait_clock_date();
    STRAIT_TRY(strait_file_make_folders(folder));
    /* Readers take files in the order of their names. Whole seconds would leave the order of a run
     * and of its continuation to their process ids. */
    STRAIT_TRY(strait_file_path(b->path, "%s/events.out.tfevents.%.6f.strait.%ld", folder, now,
                                (long)getpid()));
    b->file = fopen(b->path, "wbe");
    if (b->file == NULL) return failed(b, "create");
    begin(&e, now, 0);
    put_text(&e, EVENT_VERSION, version, sizeof version - 1);
    return append(b, &e);
}

strait_err strait_tensorboard_open(const char *folder, struct strait_tensorboard **out) {
    struct strait_tensorboard *b = NULL;
    *out = NULL;
    if (folder[0] == '\0') return STRAIT_OK;
    STRAIT_TRY(strait_alloc(1, sizeof *b, "TensorBoard", (void **)&b));
    fill_table(b->table);
    const strait_err err = open_file(b, folder);
    if (err != STRAIT_OK)
        strait_tensorboard_close(&b);
    else
        *out = b;
    return err;
}

void strait_tensorboard_close(struct strait_tensorboard **board) {
    if (*board == NULL) return;
    if ((*board)->file != NULL) (void)fclose((*board)->file);
    strait_alloc_free(*board);
    *board = NULL;
}

strait_err strait_tensorboard_put_step(struct strait_tensorboard *b, const strait_metrics_step *s,
                                       int64_t tokens) {
    event e = {.n = 0}, summary = {.n = 0};
    const struct {
        const char *tag;
        double value;
    } values[] = {{"loss/train", s->loss},
                  {"learning_rate", s->learning_rate},
                  {"grad_norm", s->grad_norm},
                  {"tokens", (double)tokens},
                  {"tokens_per_s", s->tokens_per_s},
                  {"bytes_per_token/forward", s->forward_bytes_per_token},
                  {"bytes_per_token/backward", s->backward_bytes_per_token},
                  {"ratio/forward", s->ratio_forward},
                  {"ratio/backward", s->ratio_backward},
                  {"bubble", s->bubble},
                  {"seconds", s->seconds}};
    if (b == NULL) return STRAIT_OK;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        put_value(&summary, values[i].tag, values[i].value);
    begin(&e, s->time, s->step);
    put_text(&e, EVENT_SUMMARY, summary.bytes, summary.n);
    return append(b, &e);
}

strait_err strait_tensorboard_put_valid(struct strait_tensorboard *b, int64_t step,
                                        double valid_loss) {
    event e = {.n = 0}, summary = {.n = 0};
    if (b == NULL) return STRAIT_OK;
    put_value(&summary, "loss/valid", valid_loss);
    begin(&e, strait_clock_date(), step);
    put_text(&e, EVENT_SUMMARY, summary.bytes, summary.n);
    return append(b, &e);
}
