/* hidden.h - the hidden layer over codes, kernel by kernel: what its entries in the table mean. */
#pragma once

#include "backend/backend.h"

static inline strait_err strait_hidden_by_parts(struct strait_stream *s, const strait_hidden *at,
                                                strait_recall_how how) {
    const struct strait_kernels *k = s->backend->kernels;
    if (at->packed.data != NULL)
        STRAIT_TRY(k->restore_octaves(
            s, at->z, at->stats, at->packed,
            (strait_pack_how){.is_stochastic = at->is_stochastic, .cols = how.keep}));
    STRAIT_TRY(k->recall(s, at->both, at->normeds, at->rstd, at->z, how));
    STRAIT_TRY(
        k->matmul(s, at->a, at->normeds, at->v, (strait_matmul_how){.alpha = 1, .transpose_b = 1}));
    return k->silu_cols(s, at->both, at->a, at->normeds.cols, (strait_tensor){0});
}

static inline strait_err strait_encode_by_parts(struct strait_stream *s, strait_tensor u,
                                                strait_tensor seen, strait_tensor b,
                                                strait_tensor z, strait_tensor m) {
    const struct strait_kernels *k = s->backend->kernels;
    STRAIT_TRY(k->silu_cols(s, seen, b, seen.cols - b.cols - u.cols, z));
    return k->matmul(s, u, seen, m, (strait_matmul_how){.alpha = 1, .transpose_b = 1});
}

static inline strait_err strait_restore_product_by_parts(struct strait_stream *s, strait_tensor y,
                                                         strait_tensor x, strait_tensor stats,
                                                         strait_tensor packed, strait_tensor m,
                                                         strait_pack_how how) {
    const struct strait_kernels *k = s->backend->kernels;
    STRAIT_TRY(k->restore_octaves(s, x, stats, packed, how));
    return k->matmul(s, y, x, m, (strait_matmul_how){.alpha = 1});
}

static inline strait_err strait_hidden_back_by_parts(struct strait_stream *s,
                                                     const strait_hidden_back *at,
                                                     strait_recall_how how) {
    const struct strait_kernels *k = s->backend->kernels;
    STRAIT_TRY(k->silu_cols_back(s, at->d_a, at->d_both, at->a, at->d_normeds.cols));
    STRAIT_TRY(k->matmul(s, at->d_normeds, at->d_a, at->v, (strait_matmul_how){.alpha = 1}));
    return k->recall_back(s, at->d_z, at->d_both, at->d_normeds, at->z, at->rstd, how);
}
