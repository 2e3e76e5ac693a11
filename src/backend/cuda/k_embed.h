/* k_embed.h - where the tokens of a batch stand, as embed.c makes room for it and k_embed_back.cu
 * fills it. */
#pragma once

#include <assert.h>
#include <stdint.h>

enum {
    STRAIT_CUDA_PIECE = 64,     // places of a token that one block adds up
    STRAIT_CUDA_ORDER_LANES = 8 // that put one place in order
};

/* Some places of one token: list[first .. first + count). Their sum goes to row `partial` of the
 * partial sums, or, where that is negative, into the table at once. */
typedef struct strait_cuda_piece {
    int32_t token, first, count, partial;
} strait_cuda_piece;

/* A token of several pieces: partial sums [first .. first + count). */
typedef struct strait_cuda_common {
    int32_t token, first, count;
} strait_cuda_common;

/* How much of each list is given away. */
typedef struct strait_cuda_given {
    int32_t places, pieces, partials, commons;
} strait_cuda_given;

typedef struct strait_cuda_places {
    strait_cuda_given *given;
    strait_cuda_piece *pieces;
    strait_cuda_common *commons;
    int32_t *count, *first; // by token, of those that occur: how often, and from where in the list
    int32_t *turn;          // by place: as which of its token's places it was counted
    int32_t *found, *list;  // places by token: as they were counted; in order
    float *partials;        // [rows x cols of the table]
} strait_cuda_places;

static_assert(sizeof(strait_cuda_piece) == 16, "host and device layouts agree");
static_assert(sizeof(strait_cuda_common) == 12, "host and device layouts agree");
static_assert(sizeof(strait_cuda_given) == 16, "host and device layouts agree");
static_assert(sizeof(strait_cuda_places) == 72, "host and device layouts agree");
