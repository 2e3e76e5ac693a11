/* topk_row.h - selects and packs the largest values of one row; shared by the reference loop and
 * its threaded version. */
#pragma once

#include "backend/cpu/payload_value.h"

/* Magnitudes of floats compare like their bits without the sign. Values that may not be sent count
 * as 0. */
static inline uint32_t strait_topk_magnitude(float value) {
    const float limit = STRAIT_WIRE_LIMIT;
    uint32_t bits, most;
    memcpy(&bits, &value, sizeof bits);
    memcpy(&most, &limit, sizeof most);
    bits &= 0x7fffffffu;
    return bits <= most ? bits : 0;
}

static inline int32_t strait_topk_count(const float *row, int64_t cols, uint32_t least) {
    int32_t n = 0;
    for (int64_t c = 0; c < cols; c++)
        n += strait_topk_magnitude(row[c]) >= least;
    return n;
}

/* The largest magnitude that at least `keep` values of the row reach. A binary search over bits
 * takes 31 passes, whatever the values, and needs no memory. */
static inline uint32_t strait_topk_threshold(const float *row, int64_t cols, int64_t keep) {
    uint32_t low = 0, high = 0x7fffffffu;
    while (low < high) {
        const uint32_t middle = low + (high - low + 1) / 2;
        if (strait_topk_count(row, cols, middle) >= keep)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static inline size_t strait_topk_index_bytes(int64_t cols) {
    return cols > 65536 ? 4 : 2;
}

/* Where the kept values of a tensor and their columns are stored. */
typedef struct strait_topk_row {
    unsigned char *values, *columns;
    int64_t keep;
    strait_pack_params params;
} strait_topk_row;

/* Packs row n: all values above the threshold, and the first of those equal to it until `keep` are
 * found. */
static inline void strait_topk_pack(const strait_topk_row *to, const float *row, int64_t cols,
                                    int64_t n) {
    const uint32_t least = strait_topk_threshold(row, cols, to->keep);
    const size_t bytes = strait_topk_index_bytes(cols);
    int64_t equals = to->keep - strait_topk_count(row, cols, least + 1);
    for (int64_t c = 0, i = n * to->keep; c < cols && i < (n + 1) * to->keep; c++) {
        const uint32_t size = strait_topk_magnitude(row[c]), column = (uint32_t)c;
        if (size < least || (size == least && equals-- <= 0)) continue;
        double bad = 0;
        const uint16_t half = strait_payload_bf16(strait_payload_value(row[c], &bad), to->params,
                                                  i);
        memcpy(to->values + i * 2, &half, 2);
        for (size_t b = 0; b < bytes; b++)
            to->columns[(size_t)i * bytes + b] = (unsigned char)(column >> (8 * b));
        i++;
    }
}

/* Restores row n: zeros except for the kept values. sums: error 0, squared magnitude, and how many
 * values or columns were invalid. */
static inline void strait_topk_restore(const strait_topk_row *from, float *row, int64_t cols,
                                       int64_t n, double sums[3]) {
    const size_t bytes = strait_topk_index_bytes(cols);
    double bad = 0, squares = 0;
    memset(row, 0, (size_t)cols * sizeof *row);
    for (int64_t i = n * from->keep; i < (n + 1) * from->keep; i++) {
        uint16_t half;
        int64_t column = 0;
        memcpy(&half, from->values + i * 2, 2);
        for (size_t b = 0; b < bytes; b++)
            column |= (int64_t)from->columns[(size_t)i * bytes + b] << (8 * b);
        const float value = strait_payload_value(strait_payload_f32(half), &bad);
        if (column < cols)
            row[column] = value;
        else
            bad += 1;
        squares += (double)value * (double)value;
    }
    sums[0] = 0;
    sums[1] = squares;
    sums[2] = bad;
}
