/* sample.h - how the weight of a token follows from its logit when the next token is drawn
 * (kernels.h: sample). Shared by C and CUDA.
 *
 *   value  = the logit after the soft cap and the penalty
 *   key    = a whole number with the order of the values; not a number comes last
 *   weight = floor(exp((value - largest) / temperature) / unit), unit = 2^-40
 *
 * Weights are whole numbers, so that their sums, and hence the token drawn, do not depend on the
 * order of summation. */
#pragma once

#include "backend/kernel_params.h"
#include "backend/scale.h"

#ifdef __cplusplus
extern "C" {
#endif

STRAIT_SCALE float strait_sample_value(float logit, const strait_sample_row *row, int is_seen) {
    const float ratio = row->softcap > 0.0f ? logit / row->softcap : 0.0f;
    const float value = logit / sqrtf(1.0f + ratio * ratio);
    if (!is_seen) return value;
    return value > 0.0f ? value / row->penalty : value * row->penalty;
}

/* The bits of a float are ordered like a sign and a magnitude. */
STRAIT_SCALE uint32_t strait_sample_key(float value) {
    union {
        float value;
        uint32_t bits;
    } u;
    u.value = value + 0.0f; // -0 becomes 0: the two are equal
    if (value != value) return 0;
    return (u.bits >> 31) != 0 ? ~u.bits : u.bits | 0x80000000u;
}

STRAIT_SCALE float strait_sample_unkey(uint32_t key) {
    union {
        uint32_t bits;
        float value;
    } u;
    u.bits = (key >> 31) != 0 ? key & 0x7fffffffu : ~key;
    return u.value;
}

/* The weight of a key where `top` is the largest value. Two infinite logits count as equal. */
STRAIT_SCALE uint64_t strait_sample_weight(uint32_t key, float top, float temperature) {
    const float value = strait_sample_unkey(key);
    if (key == 0) return 0;
    if (value == top) return (uint64_t)STRAIT_SAMPLE_UNIT;
    return (uint64_t)(expf((value - top) / temperature) * STRAIT_SAMPLE_UNIT);
}

STRAIT_SCALE int strait_sample_is_greedy(const strait_sample_row *row) {
    return row->temperature == 0.0f || row->top_k == 1;
}

/* The sum of weights at which top-p ends, from 1 to `total`; and the one that `random` selects. */
STRAIT_SCALE uint64_t strait_sample_share(float share, uint64_t total) {
    const double sum = (double)share * (double)total;
    const uint64_t target = (uint64_t)sum + ((double)(uint64_t)sum < sum ? 1u : 0u);
    return target < 1 ? 1 : target < total ? target : total;
}

STRAIT_SCALE uint64_t strait_sample_target(float random, uint64_t total) {
    const uint64_t target = (uint64_t)((double)random * (double)total) + 1;
    return target < total ? target : total;
}

#ifdef __cplusplus
}
#endif
