#include "swarm/snapshot/reader.h"

#include "base/alloc.h"

#include <string.h>

static const unsigned char zeros[STRAIT_PIECE_BYTES];

/* The tensor that has the values of another, where a checkpoint of a run without an outer step, or
 * with fewer replicas, lacks it: own weights, and those that an exchange noted, begin as the
 * averaged ones. NULL: they are zeros. */
static const char *stored_name(const struct strait_checkpoint *checkpoint, const char *name) {
    static const char weights[] = "replica.0.weights.", sent[] = "replica.0.sent.";
    static const char own[] = "replica.0.", common[] = "outer.";
    if (strait_checkpoint_has(checkpoint, name)) return name;
    if (strncmp(name, weights, sizeof weights - 1) == 0) return name + sizeof weights - 1;
    if (strncmp(name, sent, sizeof sent - 1) == 0) return name + sizeof sent - 1;
    return strncmp(name, own, sizeof own - 1) == 0 || strncmp(name, common, sizeof common - 1) == 0
               ? NULL
               : name;
}

/* Type and shape must match too: the worker copies the bytes into its own tensors as they are. */
static strait_err find_values(const struct strait_checkpoint *checkpoint,
                              const strait_snapshot_tensor *tensor, const unsigned char **out) {
    const strait_tensor shape = {NULL, tensor->dtype, tensor->rows, tensor->cols};
    const char *name = stored_name(checkpoint, tensor->name);
    *out = zeros;
    return name != NULL ? strait_checkpoint_view(checkpoint, name, shape, out) : STRAIT_OK;
}

/* Looks up all tensors before the first piece is sent, so that no worker receives half a snapshot.
 */
static strait_err find_all(const struct strait_checkpoint *checkpoint, strait_reader tensors) {
    while (tensors.left > 0) {
        strait_snapshot_tensor tensor;
        const unsigned char *values = NULL;
        STRAIT_TRY(strait_snapshot_header_read_tensor(&tensors, &tensor));
        STRAIT_TRY(find_values(checkpoint, &tensor, &values));
    }
    return STRAIT_OK;
}

strait_err strait_snapshot_reader_init(struct strait_snapshot_reader *reader,
                                       const struct strait_checkpoint *checkpoint,
                                       const unsigned char *header, size_t bytes, size_t limit) {
    strait_snapshot_sizes sizes = {0};
    struct strait_sha256 *hash = NULL;
    unsigned char *copy = NULL;
    int n = 0;
    *reader = (struct strait_snapshot_reader){0};
    STRAIT_TRY(strait_snapshot_header_measure(header, bytes, limit, &sizes));
    if (sizes.list_bytes != bytes) return strait_snapshot_header_fail();
    /* A copy: the request that holds the header is freed before the first piece is sent. */
    STRAIT_TRY(strait_alloc(bytes, 1, "header of a snapshot", (void **)&copy));
    memcpy(copy, header, bytes);
    strait_reader tensors = {copy, bytes, 0};
    strait_err err = strait_snapshot_header_read_count(&tensors, &n);
    if (err == STRAIT_OK) err = find_all(checkpoint, tensors);
    if (err == STRAIT_OK) err = strait_sha256_open(&hash);
    if (err != STRAIT_OK) {
        strait_alloc_free(copy);
        return err;
    }
    *reader = (struct strait_snapshot_reader){.checkpoint = checkpoint,
                                              .header = copy,
                                              .header_bytes = bytes,
                                              .bytes = bytes + sizes.value_bytes,
                                              .tensors = tensors,
                                              .hash = hash};
    return STRAIT_OK;
}

void strait_snapshot_reader_fini(struct strait_snapshot_reader *reader) {
    strait_alloc_free(reader->header);
    strait_sha256_close(&reader->hash);
    *reader = (struct strait_snapshot_reader){0};
}

/* An empty reader is done as well: both are zero. */
int strait_snapshot_reader_is_done(const struct strait_snapshot_reader *reader) {
    return reader->at == reader->bytes;
}

/* Releases the pages of the last tensor, so that sending a checkpoint larger than memory does not
 * evict others, and maps the next one. */
static strait_err next_tensor(struct strait_snapshot_reader *reader) {
    if (reader->values != NULL && reader->values != zeros)
        strait_checkpoint_drop_pages(reader->checkpoint, reader->tensor.name);
    STRAIT_TRY(strait_snapshot_header_read_tensor(&reader->tensors, &reader->tensor));
    STRAIT_TRY(find_values(reader->checkpoint, &reader->tensor, &reader->values));
    reader->left = reader->tensor.bytes;
    return STRAIT_OK;
}

/* A piece never spans two tensors, so its data can be borrowed from the mapped file. */
strait_err strait_snapshot_reader_next(struct strait_snapshot_reader *reader, strait_piece *piece) {
    const int is_header = reader->at < reader->header_bytes;
    if (!is_header && reader->left == 0) STRAIT_TRY(next_tensor(reader));
    const size_t left = is_header ? reader->header_bytes - reader->at : reader->left;
    const size_t bytes = left < STRAIT_PIECE_BYTES ? left : STRAIT_PIECE_BYTES;
    const size_t offset = reader->values == zeros ? 0 : reader->tensor.bytes - reader->left;
    *piece = (strait_piece){.stage = reader->stage,
                            .step = reader->step,
                            .generation = reader->generation,
                            .offset = reader->at,
                            .total = reader->bytes,
                            .data = is_header ? reader->header + reader->at
                                              : reader->values + offset,
                            .bytes = bytes};
    reader->at += bytes;
    if (!is_header) reader->left -= bytes;
    STRAIT_TRY(strait_sha256_add(reader->hash, piece->data, piece->bytes));
    return reader->at == reader->bytes ? strait_sha256_finish(&reader->hash, &reader->digest)
                                       : STRAIT_OK;
}
