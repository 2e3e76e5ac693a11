#include "swarm/snapshot_reader.h"

#include "base/alloc.h"

#include <string.h>

static strait_err lend(const struct strait_checkpoint *checkpoint, const strait_snapshot_row *row,
                       const unsigned char **out) {
    const strait_tensor shape = {NULL, row->dtype, row->rows, row->cols};
    return strait_checkpoint_view(checkpoint, row->name, shape, out);
}

/* Nobody shall get half an image because the other half is not there. */
static strait_err look_for_all(const struct strait_checkpoint *checkpoint, strait_reader rows) {
    while (rows.left > 0) {
        strait_snapshot_row row;
        const unsigned char *values = NULL;
        STRAIT_TRY(strait_snapshot_header_row(&rows, &row));
        STRAIT_TRY(lend(checkpoint, &row, &values));
    }
    return STRAIT_OK;
}

strait_err strait_snapshot_reader_init(struct strait_snapshot_reader *gift,
                                       const struct strait_checkpoint *checkpoint,
                                       const unsigned char *list, size_t bytes, size_t limit) {
    strait_snapshot_sum sum = {0};
    unsigned char *copy = NULL;
    int n = 0;
    *gift = (struct strait_snapshot_reader){0};
    STRAIT_TRY(strait_snapshot_header_sum(list, bytes, limit, &sum));
    if (sum.list_bytes != bytes) return strait_snapshot_header_wrong();
    STRAIT_TRY(strait_alloc(bytes, 1, "list of tensors", (void **)&copy));
    memcpy(copy, list, bytes);
    strait_reader rows = {copy, bytes, 0};
    strait_err err = strait_snapshot_header_head(&rows, &n);
    if (err == STRAIT_OK) err = look_for_all(checkpoint, rows);
    if (err != STRAIT_OK) {
        strait_alloc_free(copy);
        return err;
    }
    *gift = (struct strait_snapshot_reader){.checkpoint = checkpoint,
                                            .list = copy,
                                            .list_bytes = bytes,
                                            .bytes = bytes + sum.value_bytes,
                                            .rows = rows};
    return STRAIT_OK;
}

void strait_snapshot_reader_fini(struct strait_snapshot_reader *gift) {
    strait_alloc_free(gift->list);
    *gift = (struct strait_snapshot_reader){0};
}

int strait_snapshot_reader_is_over(const struct strait_snapshot_reader *gift) {
    return gift->at == gift->bytes;
}

static strait_err turn_to_next_row(struct strait_snapshot_reader *gift) {
    if (gift->values != NULL) strait_checkpoint_rest(gift->checkpoint, gift->row.name);
    STRAIT_TRY(strait_snapshot_header_row(&gift->rows, &gift->row));
    STRAIT_TRY(lend(gift->checkpoint, &gift->row, &gift->values));
    gift->left = gift->row.bytes;
    return STRAIT_OK;
}

strait_err strait_snapshot_reader_next(struct strait_snapshot_reader *gift, strait_piece *piece) {
    const int is_list = gift->at < gift->list_bytes;
    if (!is_list && gift->left == 0) STRAIT_TRY(turn_to_next_row(gift));
    const size_t left = is_list ? gift->list_bytes - gift->at : gift->left;
    const size_t bytes = left < STRAIT_PIECE_BYTES ? left : STRAIT_PIECE_BYTES;
    *piece = (strait_piece){.stage = gift->stage,
                            .step = gift->step,
                            .generation = gift->generation,
                            .offset = gift->at,
                            .total = gift->bytes,
                            .data = is_list ? gift->list + gift->at
                                            : gift->values + (gift->row.bytes - gift->left),
                            .bytes = bytes};
    gift->at += bytes;
    if (!is_list) gift->left -= bytes;
    return STRAIT_OK;
}
