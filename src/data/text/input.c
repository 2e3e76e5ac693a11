#include "data/text/input.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/text/utf8.h"
#include "data/shard_layout.h"
#include "data/text/decompress.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

enum {
    RAW_BYTES = 1 << 18,
    PROBE_BYTES = 8192,   // of a file, by which text is told from other data
    INVALID_PERCENT = 30, // of them may be no UTF-8: few in texts of another Latin encoding
    POLL_MS = 50          // between two calls of the stop callback while reading blocks
};

struct strait_input {
    const char *path;
    strait_input_stop stop;
    int fd;
    int is_at_end;   // read() returned 0
    int has_started; // the caller has received bytes: the format is known to be text
    int64_t n_read;  // from the file, before decompression
    unsigned char *raw;
    size_t n_raw, used;                      // raw[used..n_raw) is not yet consumed
    const struct strait_decompress_ops *ops; // NULL: not compressed
    void *state;
};

int strait_input_is_stop_requested(strait_input_stop stop) {
    return stop.is_asked != NULL && stop.is_asked(stop.arg);
}

/* Blocks until bytes or the end of the file can be read, or a stop is requested. Polling keeps
 * Ctrl-C responsive when standard input is a pipe that stays silent. */
static strait_err wait_for_bytes(const struct strait_input *input) {
    struct pollfd ready = {.fd = input->fd, .events = POLLIN};
    do {
        if (strait_input_is_stop_requested(input->stop))
            return STRAIT_FAIL(STRAIT_EINTERRUPTED, "%s: stopped reading", input->path);
    } while (poll(&ready, 1, POLL_MS) < 1);
    return STRAIT_OK;
}

/* Moves unconsumed bytes to the front and fills the buffer at least to half. */
static strait_err refill(struct strait_input *input) {
    memmove(input->raw, input->raw + input->used, input->n_raw - input->used);
    input->n_raw -= input->used;
    input->used = 0;
    while (!input->is_at_end && input->n_raw < RAW_BYTES / 2) {
        STRAIT_TRY(wait_for_bytes(input));
        const ssize_t n = read(input->fd, input->raw + input->n_raw, RAW_BYTES - input->n_raw);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            char reason[128] = "";
            (void)strerror_r(errno, reason, sizeof reason);
            return STRAIT_FAIL(STRAIT_EIO, "%s: cannot read: %s", input->path, reason);
        }
        input->is_at_end = n == 0;
        input->n_raw += (size_t)n;
        input->n_read += n;
    }
    return STRAIT_OK;
}

static strait_err open_file(struct strait_input *input) {
    input->fd = STDIN_FILENO;
    if (strcmp(input->path, "-") != 0) input->fd = open(input->path, O_RDONLY | O_CLOEXEC);
    if (input->fd < 0) {
        char reason[128] = "";
        (void)strerror_r(errno, reason, sizeof reason);
        return STRAIT_FAIL(STRAIT_EIO, "%s: cannot open: %s", input->path, reason);
    }
    STRAIT_TRY(strait_alloc(RAW_BYTES, 1, "input", (void **)&input->raw));
    STRAIT_TRY(refill(input));
    input->ops = strait_decompress_find(input->raw, input->n_raw);
    const char *extension_format = strait_decompress_name_of_extension(input->path);
    if (input->ops == NULL && extension_format != NULL)
        return STRAIT_FAIL(STRAIT_EDATA, "%s: not %s data, although its name says so", input->path,
                           extension_format);
    if (input->ops == NULL) return STRAIT_OK;
    return input->ops->open(&input->state);
}

strait_err strait_input_open(const char *path, strait_input_stop stop, struct strait_input **out) {
    struct strait_input *input = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *input, "input", (void **)&input));
    input->path = path;
    input->stop = stop;
    const strait_err err = open_file(input);
    if (err == STRAIT_OK)
        *out = input;
    else
        strait_input_close(&input);
    return err;
}

void strait_input_close(struct strait_input **input) {
    struct strait_input *i = *input;
    if (i == NULL) return;
    if (i->state != NULL) i->ops->close(i->state);
    if (i->fd > STDIN_FILENO) (void)close(i->fd);
    strait_alloc_free(i->raw);
    strait_alloc_free(i);
    *input = NULL;
}

/* Returns what is there; the caller refills. */
static strait_err read_plain(struct strait_input *input, void *out, size_t n, size_t *n_read) {
    const size_t have = input->n_raw - input->used;
    const size_t some = n < have ? n : have;
    memcpy(out, input->raw + input->used, some);
    input->used += some;
    *n_read = some;
    return STRAIT_OK;
}

/* An end of the file in the middle of a stream means a copy that was interrupted. */
static strait_err read_compressed(struct strait_input *input, void *out, size_t n, size_t *n_read) {
    strait_decompress_io io = {.in = input->raw + input->used,
                               .n_in = input->n_raw - input->used,
                               .out = out,
                               .n_out = n,
                               .is_last = input->is_at_end};
    const strait_err err = input->ops->step(input->state, &io);
    if (err == STRAIT_EDATA) strait_err_prefix("%s", input->path);
    STRAIT_TRY(err);
    input->used = input->n_raw - io.n_in;
    *n_read = n - io.n_out;
    if (*n_read == 0 && input->is_at_end && !io.is_whole)
        return STRAIT_FAIL(STRAIT_EDATA, "%s: the %s data is truncated; copy the file again",
                           input->path, input->ops->name);
    return STRAIT_OK;
}

/* pandas, because nearly everyone with a Parquet file has it. */
strait_err strait_input_refuse_parquet(const char *path) {
    return STRAIT_FAIL(STRAIT_EDATA,
                       "%s: this is a Parquet file; convert it to JSON Lines first: python3 -c "
                       "\"import pandas; pandas.read_parquet('%s').to_json('data.jsonl', "
                       "orient='records', lines=True)\"",
                       path, path);
}

/* Returns how many of the bytes are part of no UTF-8 character. */
static size_t count_invalid(const unsigned char *start, size_t n) {
    const size_t end = n - strait_utf8_incomplete(start, n); // the rest was not looked at
    size_t n_invalid = 0;
    for (size_t at = 0; at < end;) {
        at += strait_utf8_valid(start + at, end - at);
        n_invalid += at < end;
        at += at < end;
    }
    return n_invalid;
}

/* A tokenizer takes any bytes, and a model would be trained on a picture without any error. Single
 * bytes that are not UTF-8 are accepted: much text that was collected has some. */
static strait_err check_text(const struct strait_input *input, const unsigned char *start,
                             size_t n) {
    if (n > PROBE_BYTES) n = PROBE_BYTES;
    const unsigned char *nul = memchr(start, 0, n);
    if (nul != NULL)
        return STRAIT_FAIL(STRAIT_EDATA,
                           "%s: this is binary data, not text (byte %zu is NUL); convert it to "
                           "text in UTF-8 or JSON Lines, or leave the file out",
                           input->path, (size_t)(nul - start));
    const size_t n_invalid = count_invalid(start, n);
    if (n_invalid * 100 <= n * INVALID_PERCENT) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EDATA,
                       "%s: this is not text in UTF-8 (%zu of its first %zu bytes are not); if it "
                       "is text, convert it first: iconv -f ENCODING -t UTF-8",
                       input->path, n_invalid, n);
}

/* Rejects what is not text by the first (decompressed) bytes of the file. */
static strait_err check_start(struct strait_input *input, const void *start, size_t n) {
    if (input->has_started || n == 0) return STRAIT_OK;
    const char *unsupported = strait_decompress_find_unsupported(start, n);
    input->has_started = 1;
    if (n >= 4 && strait_get_u32(start) == STRAIT_SHARD_MAGIC)
        return STRAIT_FAIL(STRAIT_EDATA,
                           "%s: this is a token shard, not text; \"strait eval --data\" and run "
                           "files take shards",
                           input->path);
    if (unsupported == NULL) return check_text(input, start, n);
    if (strstr(unsupported, "Parquet") != NULL) return strait_input_refuse_parquet(input->path);
    return STRAIT_FAIL(STRAIT_EDATA, "%s: this is %s; convert it to plain text or JSON Lines first",
                       input->path, unsupported);
}

strait_err strait_input_read(struct strait_input *input, void *out, size_t n, size_t *n_read) {
    for (;;) {
        if (input->n_raw - input->used < RAW_BYTES / 4 && !input->is_at_end)
            STRAIT_TRY(refill(input));
        STRAIT_TRY(input->ops == NULL ? read_plain(input, out, n, n_read)
                                      : read_compressed(input, out, n, n_read));
        STRAIT_TRY(check_start(input, out, *n_read));
        /* A decompression step may consume input without producing output: go on then. */
        if (*n_read > 0 || (input->is_at_end && input->used == input->n_raw)) return STRAIT_OK;
    }
}

int64_t strait_input_bytes_read(const struct strait_input *input) {
    return input->n_read;
}
