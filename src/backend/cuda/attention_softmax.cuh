/* attention_softmax.cuh - online softmax over tiles of keys. */
#pragma once

#include "backend/cuda/attention.h"
#include "backend/cuda/attention_tile.cuh"

/* A lane's part of the running softmax of its MT x 2 rows: two of each 16. */
template <int P, int MT> struct running {
    float mean[MT][P / 8][4];
    float max[MT][2], sum[MT][2]; // max of unscaled scores; sum over this lane's columns only
};

template <int P, int MT> __device__ __forceinline__ void start(running<P, MT> &r) {
    clear<MT, P / 8>(r.mean);
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            r.max[m][half] = -INFINITY;
            r.sum[m][half] = 0;
        }
}

/* Replaces one row of scores by exponentials relative to the row's new maximum, on which the four
 * lanes that hold the row agree, and rescales mean and sum. The scale and log2 e are folded into
 * the exponent. */
template <int P, int NT>
__device__ __forceinline__ void softmax_row(float score[NT][4], float mean[P / 8][4], float &max,
                                            float &sum, int half, float scale) {
    float top = max;
#pragma unroll
    for (int n = 0; n < NT; n++)
        top = fmaxf(top, fmaxf(score[n][2 * half], score[n][2 * half + 1]));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
    const float shrink = power_of_2((max - top) * scale), offset = top * scale;
    max = top;
    sum *= shrink;
#pragma unroll
    for (int n = 0; n < NT; n++)
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; i++) {
            score[n][i] = power_of_2(score[n][i] * scale - offset);
            sum += score[n][i];
        }
#pragma unroll
    for (int n = 0; n < P / 8; n++)
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; i++)
            mean[n][i] *= shrink;
}

template <int P, int MT>
__device__ __forceinline__ void finish(const struct strait_attention_args &a, running<P, MT> &r,
                                       int64_t first_row, int head, int row) {
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float sum = r.sum[m][half];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            const int at = row + 16 * m + 8 * half;
            if (at >= a.seq_len) continue;
            const int64_t index = (first_row + at) * a.n_query + head;
            write_row<P>((uint16_t *)a.y + index * P, r.mean[m], half, 1 / sum);
            if (a.lse != NULL && lane_of() % 4 == 0)
                a.lse[index] = r.max[m][half] * a.scale + logf(sum);
        }
}
