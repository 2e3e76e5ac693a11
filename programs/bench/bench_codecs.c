/* bench_codecs.c - the kernels of codecs for strait bench kernels, with codes as wide as those of
 * codec strait at 128x. */
#include "bench.h"

/* Columns beyond those of the code are padding and are not packed. */
static strait_pack_params codes(const struct strait_lab *lab, int bits, int is_stochastic) {
    return (strait_pack_params){
        .bits = bits, .is_stochastic = is_stochastic, .cols = strait_lab_size(lab, 'k')};
}

/* Windows of four codes. */
static strait_window_params window_of(const struct strait_lab *lab) {
    return (strait_window_params){strait_lab_size(lab, 'k'), 4, lab->plan.shape.context, 1e-6f};
}

/* One group that becomes wider: the layout of a padded code. */
static strait_regroup_params regroup_of(const struct strait_lab *lab) {
    return (strait_regroup_params){
        .n_groups = 1, .to_cols = lab->t[0].cols, .from_cols = lab->t[1].cols, .alpha = 1};
}

/* Its arguments are a struct, so the table cannot call it in one line. */
static strait_err norm_silu_back(struct strait_lab *lab) {
    const strait_tensor *t = lab->t;
    const strait_norm_silu_grads at = {.scaled = t[0],
                                       .d_a = t[1],
                                       .d_y = t[2],
                                       .d_h = t[3],
                                       .a = t[4],
                                       .rstd = t[5],
                                       .plus = t[6],
                                       .n = t[7]};
    return lab->k->autoencoder->norm_silu_back(&lab->stream, &at);
}

/* The largest power of two, up to 128, that divides the width, as the codec chooses it. */
static int64_t tile_of(const struct strait_lab *lab) {
    int64_t tile = 1;
    while (tile < 128 && lab->plan.shape.width % (2 * tile) == 0)
        tile *= 2;
    return tile;
}

/* One line per kernel: identifier, name, tensors (bench.h), work, call. */
#define KERNELS(X)                                                                                 \
    X(pack_16, "pack_rows 16", "1b1y 1fn3 1fnk", NULL,                                             \
      k->pack_rows(s, t[0], t[1], t[2], codes(lab, 16, 0)))                                        \
    X(pack_4, "log_scale pack", "1b1o 1fn3 1fnK", NULL,                                            \
      k->log_scale->pack(s, t[0], t[1], t[2], codes(lab, 4, 0)))                                   \
    X(pack_4s, "log_scale pack stochastic", "1b1o 1fn3 1fnK", NULL,                                \
      k->log_scale->pack(s, t[0], t[1], t[2], codes(lab, 4, 1)))                                   \
    X(restore_16, "restore_rows 16", "1fnk 1fn3 1b1y", NULL,                                       \
      k->restore_rows(s, t[0], t[1], t[2], codes(lab, 16, 0)))                                     \
    X(restore_4, "log_scale restore", "1fnK 1fn3 1b1o", NULL,                                      \
      k->log_scale->restore(s, t[0], t[1], t[2], codes(lab, 4, 0)))                                \
    X(measure, "measure_rows", "1fn3 1and 1and", NULL, k->measure_rows(s, t[0], t[1], t[2]))       \
    X(topk_pack, "topk pack", "1b1z 1fnd", NULL,                                                   \
      k->topk->pack(s, t[0], t[1], t[0].cols / 4 / t[1].rows, codes(lab, 16, 0)))                  \
    X(topk_restore, "topk restore", "1fnd 1fn3 1b1z", NULL,                                        \
      k->topk->restore(s, t[0], t[1], t[2], t[2].cols / 4 / t[0].rows))                            \
    X(hadamard, "hadamard", "1fnd 1fnd", NULL,                                                     \
      k->hadamard->transform(s, t[0], t[1], tile_of(lab)))                                         \
    X(resize, "resize_cols", "1and 1anK", NULL, k->resize_cols(s, t[0], t[1]))                     \
    X(regroup, "regroup_cols", "1and 1fnK", NULL, k->regroup_cols(s, t[0], t[1], regroup_of(lab))) \
    X(embed_minus, "embed_minus", "1and 0fvd 1in1 1and", NULL,                                     \
      k->subspace->embed_minus(s, t[0], t[1], t[2], t[3]))                                         \
    X(gain, "token_gates apply", "1and 1and 0fvd 1in1", NULL,                                      \
      k->token_gates->apply(s, t[0], t[1], t[2], t[3]))                                            \
    X(gain_back, "token_gates apply_back", "1and 1and 1and 1and 0fvd 1in1", NULL,                  \
      k->token_gates->apply_back(s, t[0], t[1], t[2], t[3], t[4], t[5]))                           \
    X(subtract_norm, "subtract_norm", "1and 1and 1fn1 1and 1and", NULL,                            \
      k->autoencoder->subtract_norm(s, t[0], t[1], t[2], t[3], t[4], 1e-6f))                       \
    X(window, "window", "1fnw 1fnK", NULL,                                                         \
      k->autoencoder->window(s, t[0], t[1], lab->plan.shape.context))                              \
    X(window_back, "window_back", "1fnK 1fnw", NULL,                                               \
      k->autoencoder->window_back(s, t[0], t[1], lab->plan.shape.context))                         \
    X(window_norm, "window_norm", "0anu 2anw 1fn1 1fnK", NULL,                                     \
      k->autoencoder->window_norm(s, t[0], t[1], t[2], t[3], window_of(lab)))                      \
    X(window_norm_back, "window_norm_back", "1fnK 0anu 2anw 1fnK 1fn1", NULL,                      \
      k->autoencoder->window_norm_back(s, t[0], t[1], t[2], t[3], t[4], window_of(lab)))           \
    X(silu, "silu", "1anm 1anm", NULL, k->silu(s, t[0], t[1]))                                     \
    X(silu_back, "silu_back", "1anm 1anm 1anm", NULL, k->silu_back(s, t[0], t[1], t[2]))           \
    X(silu_cols, "silu_cols", "0anu 2anm", NULL,                                                   \
      k->autoencoder->silu_cols(s, t[0], t[1], strait_lab_size(lab, 'w'), (strait_tensor){0}))     \
    X(silu_cols_back, "silu_cols_back", "2anm 0anu 1anm", NULL,                                    \
      k->autoencoder->silu_cols_back(s, t[0], t[1], t[2], strait_lab_size(lab, 'w')))              \
    X(normed, "norm_silu_back", "1anm 1anm 1and 1anm 1anm 1fn1 1and 1and", NULL,                   \
      norm_silu_back(lab))                                                                         \
    X(basis, "orthonormalise", "2fnr", NULL, k->lowrank->orthonormalise(s, t[0]))

STRAIT_LAB_FAMILY(KERNELS, strait_lab_codecs)
