#include "swarm/snapshot_reader.h"

#include "base/alloc.h"

#include <string.h>

static strait_err find_values(const struct strait_checkpoint *checkpoint,
                              const strait_snapshot_row *row, const unsigned char **out) {
    const strait_tensor shape = {NULL, row->dtype, row->rows, row->cols};
    return strait_checkpoint_view(checkpoint, row->name, shape, out);
}

/* Looks up all tensors before the first piece is sent, so that no worker receives half a snapshot.
 */
static strait_err find_all(const struct strait_checkpoint *checkpoint, strait_reader rows) {
    while (rows.left > 0) {
        strait_snapshot_row row;
        const unsigned char *values = NULL;
        STRAIT_TRY(strait_snapshot_header_row(&rows, &row));
        STRAIT_TRY(find_values(checkpoint, &row, &values));
    }
    return STRAIT_OK;
}

strait_err strait_snapshot_reader_init(struct strait_snapshot_reader *reader,
                                       const struct strait_checkpoint *checkpoint,
                                       const unsigned char *header, size_t bytes, size_t limit) {
    strait_snapshot_sum sum = {0};
    unsigned char *copy = NULL;
    int n = 0;
    *reader = (struct strait_snapshot_reader){0};
    STRAIT_TRY(strait_snapshot_header_sum(header, bytes, limit, &sum));
    if (sum.list_bytes != bytes) return strait_snapshot_header_wrong();
    STRAIT_TRY(strait_alloc(bytes, 1, "header of a snapshot", (void **)&copy));
    memcpy(copy, header, bytes);
    strait_reader rows = {copy, bytes, 0};
    strait_err err = strait_snapshot_header_head(&rows, &n);
    if (err == STRAIT_OK) err = find_all(checkpoint, rows);
    if (err != STRAIT_OK) {
        strait_alloc_free(copy);
        return err;
    }
    *reader = (struct strait_snapshot_reader){.checkpoint = checkpoint,
                                              .header = copy,
                                              .header_bytes = bytes,
                                              .bytes = bytes + sum.value_bytes,
                                              .rows = rows};
    return STRAIT_OK;
}

void strait_snapshot_reader_fini(struct strait_snapshot_reader *reader) {
    strait_alloc_free(reader->header);
    *reader = (struct strait_snapshot_reader){0};
}

int strait_snapshot_reader_is_over(const struct strait_snapshot_reader *reader) {
    return reader->at == reader->bytes;
}

/* Releases the pages of the last tensor and maps the next one. */
static strait_err advance_row(struct strait_snapshot_reader *reader) {
    if (reader->values != NULL) strait_checkpoint_rest(reader->checkpoint, reader->row.name);
    STRAIT_TRY(strait_snapshot_header_row(&reader->rows, &reader->row));
    STRAIT_TRY(find_values(reader->checkpoint, &reader->row, &reader->values));
    reader->left = reader->row.bytes;
    return STRAIT_OK;
}

strait_err strait_snapshot_reader_next(struct strait_snapshot_reader *reader, strait_piece *piece) {
    const int is_header = reader->at < reader->header_bytes;
    if (!is_header && reader->left == 0) STRAIT_TRY(advance_row(reader));
    const size_t left = is_header ? reader->header_bytes - reader->at : reader->left;
    const size_t bytes = left < STRAIT_PIECE_BYTES ? left : STRAIT_PIECE_BYTES;
    *piece = (strait_piece){.stage = reader->stage,
                            .step = reader->step,
                            .generation = reader->generation,
                            .offset = reader->at,
                            .total = reader->bytes,
                            .data = is_header ? reader->header + reader->at
                                              : reader->values + (reader->row.bytes - reader->left),
                            .bytes = bytes};
    reader->at += bytes;
    if (!is_header) reader->left -= bytes;
    return STRAIT_OK;
}
