/* assign.c - see assign.h. Workers report their own speed, so unknown and noisy values must not
 * lead to a lopsided split. */
#include "swarm/coordinator/assign.h"

#include "plan/split.h"

#include <math.h>
#include <string.h>

enum {
    WORKERS_MAX = 1024
};

static const double same_speed = 1.3; // speeds within this factor count as equal

/* Writes the speed of each worker; an unknown one is assumed to be the median of those known. */
static void fill_speeds(const strait_assign_spec *spec, double *speeds) {
    double known[WORKERS_MAX];
    int n = 0;
    for (int i = 0; i < spec->n_workers; i++) {
        const double speed = spec->workers[i].flops;
        if (!(speed > 0.0)) continue;
        int at = n++;
        for (; at > 0 && known[at - 1] > speed; at--)
            known[at] = known[at - 1];
        known[at] = speed;
    }
    for (int i = 0; i < spec->n_workers; i++)
        speeds[i] = spec->workers[i].flops > 0.0 ? spec->workers[i].flops
                    : n > 0                      ? known[n / 2]
                                                 : 1.0;
}

/* A worker with less memory than one layer can serve no stage at all, however fast it is. */
static int fits_a_layer(const strait_assign_spec *spec, int i) {
    return spec->workers[i].memory_bytes <= 0.0 ||
           spec->workers[i].memory_bytes >= spec->layer_bytes;
}

/* Marks the fastest workers that can hold a layer; returns how many were found. */
static int choose(const strait_assign_spec *spec, const double *speeds, unsigned char *is_taken) {
    int n = 0;
    for (; n < spec->n_stages; n++) {
        int best = -1;
        for (int i = 0; i < spec->n_workers; i++)
            if (!is_taken[i] && fits_a_layer(spec, i) && (best < 0 || speeds[i] > speeds[best]))
                best = i;
        if (best < 0) return n;
        is_taken[best] = 1;
    }
    return n;
}

/* Replaces speeds by multiples of the slowest, rounded to quarter octaves, so that noise does not
 * change the split; 1 for all if they are equal within `same_speed`. */
static void quantise(double *speeds, int n) {
    double least = speeds[0];
    double most = speeds[0];
    for (int i = 1; i < n; i++) {
        least = fmin(least, speeds[i]);
        most = fmax(most, speeds[i]);
    }
    for (int i = 0; i < n; i++)
        speeds[i] = most <= same_speed * least ? 1.0
                                               : exp2(round(4.0 * log2(speeds[i] / least)) / 4.0);
}

/* Returns how many layers fit into the memory of a worker; unknown memory counts as enough. */
static double layers_in(const strait_assign_spec *spec, int worker) {
    const double memory = spec->workers[worker].memory_bytes;
    return memory > 0.0 && spec->layer_bytes > 0.0 ? memory / spec->layer_bytes : 1e9;
}

/* For a split from the run file, which the splitter has not checked. */
static strait_err check_memory(const strait_assign_spec *spec, const int *workers,
                               const int *counts) {
    for (int i = 0; i < spec->n_stages; i++) {
        const double need = counts[i] * spec->layer_bytes + (i == 0 ? spec->embed_bytes : 0.0) +
                            (i == spec->n_stages - 1 ? spec->head_bytes : 0.0);
        const double has = spec->workers[workers[i]].memory_bytes;
        if (has > 0.0 && has < need)
            return STRAIT_FAIL(STRAIT_EAGAIN,
                               "stage %d needs %.0f MB and its worker has %.0f MB free", i,
                               need / 1e6, has / 1e6);
    }
    return STRAIT_OK;
}

strait_err strait_assign(const strait_assign_spec *spec, int workers[STRAIT_RUN_STAGES],
                         int counts[STRAIT_RUN_STAGES]) {
    double speeds[WORKERS_MAX];
    double chosen[STRAIT_RUN_STAGES] = {0};
    double memories[STRAIT_RUN_STAGES] = {0};
    unsigned char is_taken[WORKERS_MAX] = {0};
    if (spec->n_workers > WORKERS_MAX)
        return STRAIT_FAIL(STRAIT_EINVAL, "more than %d workers", WORKERS_MAX);
    fill_speeds(spec, speeds);
    const int n = choose(spec, speeds, is_taken);
    if (n < spec->n_stages && n < spec->n_workers)
        return STRAIT_FAIL(STRAIT_EAGAIN,
                           "%d of %d workers have enough memory for a layer, which takes %.0f MB",
                           n, spec->n_stages, spec->layer_bytes / 1e6);
    if (n < spec->n_stages)
        return STRAIT_FAIL(STRAIT_EAGAIN, "%d of %d workers are connected", n, spec->n_stages);
    for (int i = 0, stage = 0; i < spec->n_workers; i++) {
        if (!is_taken[i]) continue;
        workers[stage] = i;
        chosen[stage] = speeds[i];
        memories[stage++] = layers_in(spec, i);
    }
    quantise(chosen, spec->n_stages);
    if (spec->split != NULL) {
        memcpy(counts, spec->split, (size_t)spec->n_stages * sizeof *counts);
        return check_memory(spec, workers, counts);
    }
    const double layer = spec->layer_bytes > 0.0 ? spec->layer_bytes : 1.0;
    const strait_split_spec split = {.n_layers = spec->n_layers,
                                     .n_stages = spec->n_stages,
                                     .stride = spec->stride,
                                     .head_cost = spec->head_cost,
                                     .embedding_memory = spec->embed_bytes / layer,
                                     .head_memory = spec->head_bytes / layer,
                                     .speeds = chosen,
                                     .memories = memories};
    const strait_err err = strait_split_auto(&split, counts);
    /* No split fits these workers. Others may join, so this is not final. */
    return err == STRAIT_ECONFIG ? STRAIT_EAGAIN : err;
}
