/* subspace_rig.h - a small subspace codec, and matrix functions to compute what it should do. */
#pragma once

#include "codec/subspace/subspace.h"
#include "pair.h"

enum {
    N = 32,
    D = 24,
    K = 5,
    VOCAB = 40,
    INPUTS = 33
};

static inline strait_codec_spec spec_of(const char *variant) {
    strait_codec_spec spec = {.name = "subspace",
                              .rows = N,
                              .cols = D,
                              .vocab = VOCAB,
                              .keep = K,
                              .widest = INPUTS,
                              .bits = 32,
                              .seed = 4,
                              .grassmann_every = 10,
                              .grassmann_rate = 1};
    (void)strncpy(spec.variant, variant, sizeof spec.variant - 1);
    return spec;
}

/* U [d x k], to read. */
static inline strait_tensor basis_of(const struct strait_codec *c) {
    strait_tensor basis, fixed;
    CHECK_OK(strait_codec_basis_view(c, &basis, &fixed));
    return basis;
}

static inline strait_tensor product(strait_tensor a, strait_tensor b) {
    strait_tensor y = pair_tensor(a.rows, b.cols);
    for (int64_t i = 0; i < y.rows * y.cols; i++) {
        double sum = 0;
        for (int64_t j = 0; j < a.cols; j++)
            sum += (double)f32(a)[i / y.cols * a.cols + j] *
                   (double)f32(b)[j * b.cols + i % y.cols];
        f32(y)[i] = (float)sum;
    }
    return y;
}

static inline strait_tensor transposed(strait_tensor a) {
    strait_tensor y = pair_tensor(a.cols, a.rows);
    for (int64_t i = 0; i < a.rows * a.cols; i++)
        f32(y)[i % a.cols * a.rows + i / a.cols] = f32(a)[i];
    return y;
}

/* a U U^T */
static inline strait_tensor projected(strait_tensor a, strait_tensor u) {
    const strait_tensor code = product(a, u), back = transposed(u), y = product(code, back);
    free(code.data);
    free(back.data);
    return y;
}
