#include "base/alloc.h"
#include "base/bytes.h"
#include "data/shard.h"
#include "data/shard_layout.h"

#include <stdio.h>
#include <unistd.h>

enum {
    BUFFER_IDS = 16384 // converted per write
};

struct strait_shard_writer {
    char path[STRAIT_PATH_MAX];
    char temp_path[STRAIT_PATH_MAX]; // PATH.tmp; empty once there is nothing to remove
    FILE *file;
    int64_t vocab, count;
    int id_bytes;
    uint32_t tags;                                   // bits of an id that are not part of it
    unsigned char header[STRAIT_SHARD_HEADER_BYTES]; // its count is filled in by finish
    unsigned char buffer[BUFFER_IDS * 4];
};

/* Only lower case: a fingerprint has one spelling. */
static int digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static strait_err put_fingerprint(unsigned char *header, const char *text) {
    if (text == NULL) return STRAIT_OK;
    for (size_t i = 0; i < STRAIT_SHARD_PRINT_BYTES; i++) {
        const int high = digit(text[2 * i]);
        const int low = high < 0 ? -1 : digit(text[2 * i + 1]);
        if (low < 0)
            return STRAIT_FAIL(STRAIT_EINVAL, "fingerprint \"%s\": expected 32 hexadecimal digits",
                               text);
        header[STRAIT_SHARD_FINGERPRINT + i] = (unsigned char)(high << 4 | low);
    }
    return STRAIT_OK;
}

/* The width of ids follows from the vocabulary, not from the ids, so that all shards of a corpus
 * agree. */
static strait_err start_writer(struct strait_shard_writer *writer, const char *path,
                               strait_shard_spec spec) {
    if (spec.vocab < 1 || spec.vocab > (spec.has_documents ? STRAIT_TOKEN_UNTRAINED : INT32_MAX))
        return STRAIT_FAIL(STRAIT_EINVAL, "%s: vocabulary of %lld", path, (long long)spec.vocab);
    STRAIT_TRY(strait_file_path(writer->path, "%s", path));
    STRAIT_TRY(strait_file_path(writer->temp_path, "%s.tmp", path));
    writer->vocab = spec.vocab;
    writer->tags = spec.has_documents ? STRAIT_TOKEN_TAGS : 0;
    writer->id_bytes = spec.vocab <= STRAIT_SHARD_NARROW_VOCAB && !spec.has_documents ? 2 : 4;
    strait_put_u32(writer->header, STRAIT_SHARD_MAGIC);
    strait_put_u32(writer->header + 4, spec.has_documents      ? STRAIT_SHARD_TAGGED
                                       : writer->id_bytes == 2 ? STRAIT_SHARD_NARROW
                                                               : STRAIT_SHARD_WIDE);
    strait_put_u32(writer->header + 16, (uint32_t)spec.vocab);
    STRAIT_TRY(put_fingerprint(writer->header, spec.tokenizer));
    writer->file = fopen(writer->temp_path, "wb");
    if (writer->file == NULL)
        return STRAIT_FAIL(STRAIT_EIO,
                           "%s: cannot create; does the folder exist, and is it writable?",
                           writer->temp_path);
    if (fwrite(writer->header, 1, sizeof writer->header, writer->file) != sizeof writer->header)
        return STRAIT_FAIL(STRAIT_EIO, "%s: cannot write; is the disk full?", writer->temp_path);
    return STRAIT_OK;
}

strait_err strait_shard_writer_open(const char *path, strait_shard_spec spec,
                                    struct strait_shard_writer **out) {
    struct strait_shard_writer *writer = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *writer, "shard writer", (void **)&writer));
    const strait_err err = start_writer(writer, path, spec);
    if (err == STRAIT_OK)
        *out = writer;
    else
        strait_shard_writer_close(&writer);
    return err;
}

static strait_err write_block(struct strait_shard_writer *writer, const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const int32_t id = (int32_t)((uint32_t)ids[i] & ~writer->tags);
        if (id < 0 || id >= writer->vocab)
            return STRAIT_FAIL(STRAIT_EINVAL, "%s: id %d is outside the vocabulary of %lld",
                               writer->path, id, (long long)writer->vocab);
        if (writer->id_bytes == 4) {
            strait_put_u32(writer->buffer + 4 * i, (uint32_t)ids[i]);
        } else {
            writer->buffer[2 * i] = (unsigned char)ids[i];
            writer->buffer[2 * i + 1] = (unsigned char)(ids[i] >> 8);
        }
    }
    const size_t bytes = n * (size_t)writer->id_bytes;
    if (fwrite(writer->buffer, 1, bytes, writer->file) != bytes)
        return STRAIT_FAIL(STRAIT_EIO, "%s: cannot write; is the disk full?", writer->temp_path);
    writer->count += (int64_t)n;
    return STRAIT_OK;
}

/* In blocks of fixed size, so that the buffer never grows. */
strait_err strait_shard_writer_append(struct strait_shard_writer *writer, const int32_t *ids,
                                      size_t n) {
    while (n > 0) {
        const size_t some = n < BUFFER_IDS ? n : BUFFER_IDS;
        STRAIT_TRY(write_block(writer, ids, some));
        ids += some;
        n -= some;
    }
    return STRAIT_OK;
}

int64_t strait_shard_writer_count(const struct strait_shard_writer *writer) {
    return writer->count;
}

strait_err strait_shard_writer_finish(struct strait_shard_writer **writer) {
    struct strait_shard_writer *w = *writer;
    strait_put_u32(w->header + 8, (uint32_t)w->count);
    strait_put_u32(w->header + 12, (uint32_t)(w->count >> 32));
    strait_err err = STRAIT_OK;
    if (fseek(w->file, 0, SEEK_SET) != 0 ||
        fwrite(w->header, 1, sizeof w->header, w->file) != sizeof w->header)
        err = STRAIT_FAIL(STRAIT_EIO, "%s: cannot write; is the disk full?", w->temp_path);
    /* The data must be on disk before the rename, or a crash could leave a truncated shard. */
    if (err == STRAIT_OK) err = strait_file_finish(&w->file, w->temp_path);
    if (err == STRAIT_OK) err = strait_file_move(w->temp_path, w->path);
    if (err == STRAIT_OK) w->temp_path[0] = '\0';
    strait_shard_writer_close(writer);
    return err;
}

/* Removes the unfinished file; after finish there is none. */
void strait_shard_writer_close(struct strait_shard_writer **writer) {
    struct strait_shard_writer *w = *writer;
    if (w == NULL) return;
    if (w->file != NULL) (void)fclose(w->file);
    if (w->temp_path[0] != '\0') (void)unlink(w->temp_path);
    strait_alloc_free(w);
    *writer = NULL;
}
