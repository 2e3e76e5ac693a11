/* gift.h - an image as it lies in a checkpoint, to be sent piece by piece: no more of it is read
 * than the piece at hand. One thread uses a gift. */
#pragma once

#include "store/checkpoint.h"
#include "swarm/image_list.h"
#include "swarm/protocol.h"

struct strait_gift {                            // zeroed is empty
    const struct strait_checkpoint *checkpoint; // borrowed; NULL: there is no gift
    int stage;
    int64_t step;
    uint32_t born;
    unsigned char *list;
    size_t list_bytes, bytes; // of the list, and of all
    size_t at;                // bytes that were given
    strait_reader rows;       // of the list, that are to come
    strait_image_row row;     // at hand
    const unsigned char *values;
    size_t left; // of its values
};

/* Keeps `checkpoint` until fini, and copies the list of what is wanted, which may come from anyone:
 * STRAIT_EPROTO when it makes no sense or the image would be larger than `limit`. STRAIT_EDATA
 * names a tensor that the checkpoint does not have so. On error the gift is empty. */
strait_err strait_gift_init(struct strait_gift *gift, const struct strait_checkpoint *checkpoint,
                            const unsigned char *list, size_t bytes, size_t limit);
void strait_gift_fini(struct strait_gift *gift); // accepts an empty one

int strait_gift_is_over(const struct strait_gift *gift);

/* The next piece of one that is not over; its data is lent until the next call. */
strait_err strait_gift_next(struct strait_gift *gift, strait_piece *piece);
