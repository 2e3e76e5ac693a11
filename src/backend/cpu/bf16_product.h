/* bf16_product.h - matrix products by the bf16 instructions of a processor.
 *
 * A unit multiplies pairs of bf16 values and adds them to f32 sums. How it orders them is its own
 * (docs/numerics.md), so two kinds of units differ in the last bits; one kind gives the same bits
 * for any number of threads, because work is split by shape alone. */
#pragma once

#include "backend/cpu/cpu.h"

/* y = alpha a b + beta y. Value (i, k) of the left side is a[i * a_row + k * a_depth], value (k, j)
 * of the right side b[j * b_col + k * b_depth]. The result is y, or y_half where that is set, with
 * rows of `cols` values. */
typedef struct strait_bf16_product {
    const uint16_t *a, *b;
    int64_t a_row, a_depth, b_col, b_depth;
    float *y;
    uint16_t *y_half;
    int64_t rows, cols, depth;
    float alpha, beta;
} strait_bf16_product;

struct flash_job;

#define STRAIT_BF16_CHUNK INT64_C(256) // queries of an item of attention

/* Computes one item of attention (flash.h) in a thread's scratch. */
typedef void (*strait_bf16_attend)(const struct flash_job *job, int item, float *scratch);

/* A kind of instructions. */
struct strait_bf16_units {
    const char *name; // for the description of the device
    /* Whether this processor and operating system allow it; asks for permission where needed. */
    int (*is_supported)(void);
    /* Whether the product fits the packed panels; otherwise the caller converts it to f32. */
    int (*takes)(const strait_bf16_product *p);
    void (*multiply)(const struct strait_cpu *cpu, const strait_bf16_product *p);
    /* Attention and its gradient: an item is a chunk of queries of one head and sequence, or one
     * key head of a sequence. NULL: attention converts to f32. */
    strait_bf16_attend attend, attend_back;
};

/* Kinds that this build has code for, the fastest last, ended by an entry without a name. */
extern const struct strait_bf16_units strait_bf16_units[];

/* Why a faster kind that the processor has is not used; NULL where there is nothing to say. */
const char *strait_bf16_note(void);
