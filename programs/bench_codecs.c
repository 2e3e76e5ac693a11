/* bench_codecs.c - the kernels of compression, as strait bench kernels calls them: codes as the
 * codec strait has them at 128 times, the rest of the stream's width. */
#include "bench.h"

static strait_pack_params codes(const struct strait_lab *lab, int bits, int is_stochastic) {
    return (strait_pack_params){
        .bits = bits, .is_stochastic = is_stochastic, .cols = strait_lab_size(lab, 'k')};
}

static strait_recall_params recall_of(const struct strait_lab *lab) {
    return (strait_recall_params){strait_lab_size(lab, 'k'), 4, lab->plan.shape.context, 1e-6f};
}

static strait_regroup_params regroup_of(const struct strait_lab *lab) {
    return (strait_regroup_params){
        .n_groups = 1, .to_cols = lab->t[0].cols, .from_cols = lab->t[1].cols, .alpha = 1};
}

static strait_err normed_silu_back(struct strait_lab *lab) {
    const strait_tensor *t = lab->t;
    const strait_normed_silu at = {.scaled = t[0],
                                   .d_a = t[1],
                                   .d_y = t[2],
                                   .d_h = t[3],
                                   .a = t[4],
                                   .rstd = t[5],
                                   .plus = t[6],
                                   .n = t[7]};
    return lab->k->normed_silu_back(&lab->stream, &at);
}

static int64_t tile_of(const struct strait_lab *lab) {
    int64_t tile = 1;
    while (tile < 128 && lab->plan.shape.width % (2 * tile) == 0)
        tile *= 2;
    return tile;
}

#define KERNELS(X)                                                                                 \
    X(pack_16, "pack_rows 16", "1b1y 1fn3 1fnk", NULL,                                             \
      k->pack_rows(s, t[0], t[1], t[2], codes(lab, 16, 0)))                                        \
    X(pack_4, "pack_octaves", "1b1o 1fn3 1fnK", NULL,                                              \
      k->pack_octaves(s, t[0], t[1], t[2], codes(lab, 4, 0)))                                      \
    X(pack_4s, "pack_octaves stochastic", "1b1o 1fn3 1fnK", NULL,                                  \
      k->pack_octaves(s, t[0], t[1], t[2], codes(lab, 4, 1)))                                      \
    X(restore_16, "restore_rows 16", "1fnk 1fn3 1b1y", NULL,                                       \
      k->restore_rows(s, t[0], t[1], t[2], codes(lab, 16, 0)))                                     \
    X(restore_4, "restore_octaves", "1fnK 1fn3 1b1o", NULL,                                        \
      k->restore_octaves(s, t[0], t[1], t[2], codes(lab, 4, 0)))                                   \
    X(measure, "measure_rows", "1fn3 1and 1and", NULL, k->measure_rows(s, t[0], t[1], t[2]))       \
    X(pack_top, "pack_top", "1b1z 1fnd", NULL,                                                     \
      k->pack_top(s, t[0], t[1], t[0].cols / 4 / t[1].rows, codes(lab, 16, 0)))                    \
    X(restore_top, "restore_top", "1fnd 1fn3 1b1z", NULL,                                          \
      k->restore_top(s, t[0], t[1], t[2], t[2].cols / 4 / t[0].rows))                              \
    X(hadamard, "hadamard", "1fnd 1fnd", NULL, k->hadamard(s, t[0], t[1], tile_of(lab)))           \
    X(resize, "resize_cols", "1and 1anK", NULL, k->resize_cols(s, t[0], t[1]))                     \
    X(regroup, "regroup_cols", "1and 1fnK", NULL, k->regroup_cols(s, t[0], t[1], regroup_of(lab))) \
    X(embed_minus, "embed_minus", "1and 0fvd 1in1 1and", NULL,                                     \
      k->embed_minus(s, t[0], t[1], t[2], t[3]))                                                   \
    X(gain, "gain_rows", "1and 1and 0fvd 1in1", NULL, k->gain_rows(s, t[0], t[1], t[2], t[3]))     \
    X(gain_back, "gain_rows_back", "1and 1and 1and 1and 0fvd 1in1", NULL,                          \
      k->gain_rows_back(s, t[0], t[1], t[2], t[3], t[4], t[5]))                                    \
    X(part, "part_rows", "1and 1and 1fn1 1and 1and", NULL,                                         \
      k->part_rows(s, t[0], t[1], t[2], t[3], t[4], 1e-6f))                                        \
    X(window, "window", "1fnw 1fnK", NULL, k->window(s, t[0], t[1], lab->plan.shape.context))      \
    X(window_back, "window_back", "1fnK 1fnw", NULL,                                               \
      k->window_back(s, t[0], t[1], lab->plan.shape.context))                                      \
    X(recall, "recall", "0anu 2anw 1fn1 1fnK", NULL,                                               \
      k->recall(s, t[0], t[1], t[2], t[3], recall_of(lab)))                                        \
    X(recall_back, "recall_back", "1fnK 0anu 2anw 1fnK 1fn1", NULL,                                \
      k->recall_back(s, t[0], t[1], t[2], t[3], t[4], recall_of(lab)))                             \
    X(silu, "silu", "1anm 1anm", NULL, k->silu(s, t[0], t[1]))                                     \
    X(silu_back, "silu_back", "1anm 1anm 1anm", NULL, k->silu_back(s, t[0], t[1], t[2]))           \
    X(silu_cols, "silu_cols", "0anu 2anm", NULL,                                                   \
      k->silu_cols(s, t[0], t[1], strait_lab_size(lab, 'w'), (strait_tensor){0}))                  \
    X(silu_cols_back, "silu_cols_back", "2anm 0anu 1anm", NULL,                                    \
      k->silu_cols_back(s, t[0], t[1], t[2], strait_lab_size(lab, 'w')))                           \
    X(normed, "normed_silu_back", "1anm 1anm 1and 1anm 1anm 1fn1 1and 1and", NULL,                 \
      normed_silu_back(lab))                                                                       \
    X(basis, "orthonormalise", "2fnr", NULL, k->orthonormalise(s, t[0]))

STRAIT_LAB_FAMILY(KERNELS, strait_lab_codecs)
