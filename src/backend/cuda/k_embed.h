/* k_embed.h - lists of the positions of each token in a batch, shared by host and device: embed.c
 * allocates them in scratch, k_embed_back.cu fills them. */
#pragma once

#include <assert.h>
#include <stdint.h>

enum {
    STRAIT_CUDA_ORDER_LANES = 8 // lanes that sort one position into its list
};

/* Some positions of one token: list[first .. first + count). Their sum goes to row `partial` of the
 * partial sums or, where that is negative, directly into the table. */
typedef struct strait_cuda_piece {
    int32_t token, first, count, partial;
} strait_cuda_piece;

/* A token with several pieces: partial sums [first .. first + count). */
typedef struct strait_cuda_common {
    int32_t token, first, count;
} strait_cuda_common;

/* How much of each list is in use; counted up with atomics. */
typedef struct strait_cuda_used {
    int32_t positions, pieces, partials, commons;
} strait_cuda_used;

typedef struct strait_cuda_positions {
    strait_cuda_used *used;
    strait_cuda_piece *pieces;
    strait_cuda_common *commons;
    int32_t *count, *first; // by token: occurrences, and the start of its list
    int32_t *rank;          // by position: which of its token's occurrences it was counted as
    int32_t *found, *list;  // positions by token: as they were counted; sorted
    float *partials;        // [rows x cols of the table]
} strait_cuda_positions;

static_assert(sizeof(strait_cuda_piece) == 16, "host and device layouts agree");
static_assert(sizeof(strait_cuda_common) == 12, "host and device layouts agree");
static_assert(sizeof(strait_cuda_used) == 16, "host and device layouts agree");
static_assert(sizeof(strait_cuda_positions) == 72, "host and device layouts agree");
