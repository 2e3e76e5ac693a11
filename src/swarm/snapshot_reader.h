/* gift.h - an image as it lies in a checkpoint, to be sent piece by piece: no more of it is read
 * than the piece at hand. One thread uses a gift. */
#pragma once

#include "store/checkpoint.h"
#include "swarm/protocol.h"
#include "swarm/snapshot_header.h"

struct strait_snapshot_reader {                 // zeroed is empty
    const struct strait_checkpoint *checkpoint; // borrowed; NULL: there is no gift
    int stage;
    int64_t step;
    uint32_t generation;
    unsigned char *list;
    size_t list_bytes, bytes; // of the list, and of all
    size_t at;                // bytes that were given
    strait_reader rows;       // of the list, that are to come
    strait_snapshot_row row;  // at hand
    const unsigned char *values;
    size_t left; // of its values
};

/* Keeps `checkpoint` until fini, and copies the list of what is wanted, which may come from anyone:
 * STRAIT_EPROTO when it makes no sense or the image would be larger than `limit`. STRAIT_EDATA
 * names a tensor that the checkpoint does not have so. On error the gift is empty. */
strait_err strait_snapshot_reader_init(struct strait_snapshot_reader *gift,
                                       const struct strait_checkpoint *checkpoint,
                                       const unsigned char *list, size_t bytes, size_t limit);
void strait_snapshot_reader_fini(struct strait_snapshot_reader *gift); // accepts an empty one

int strait_snapshot_reader_is_over(const struct strait_snapshot_reader *gift);

/* The next piece of one that is not over; its data is lent until the next call. */
strait_err strait_snapshot_reader_next(struct strait_snapshot_reader *gift, strait_piece *piece);
