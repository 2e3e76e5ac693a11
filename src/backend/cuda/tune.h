/* tune.h - algorithms of matrix products chosen by timing, and written down.
 *
 * Without a record the library's first proposal is taken, which is the same in every run. With one,
 * a product that stands in it takes the proposal named there; another is timed on first use and
 * joins it. Runs that read the same record make the same bits. A record is for one kind of device
 * and one version of the library. */
#pragma once

#include "backend/cuda/info.h"
#include "base/error.h"

#include <stdint.h>

enum {
    STRAIT_CUDA_TUNE_NUMBERS = 12, // that name a product
    STRAIT_CUDA_TUNE_PRODUCTS = 512
};

/* A product as the record knows it: sizes, types, transposes, alignments. */
typedef struct strait_cuda_tuned {
    int64_t product[STRAIT_CUDA_TUNE_NUMBERS];
    int64_t choice; // which proposal, from 0
} strait_cuda_tuned;

struct strait_cuda_tune {
    char path[STRAIT_CUDA_PATH];
    int n_known;
    strait_cuda_tuned known[STRAIT_CUDA_TUNE_PRODUCTS];
};

/* Reads the record that `path` names; an absent file is an empty record. STRAIT_EDATA names the
 * line that is not one. The caller closes it. */
strait_err strait_cuda_tune_open(const char *path, struct strait_cuda_tune **out);
void strait_cuda_tune_close(struct strait_cuda_tune **tune); // accepts NULL

/* The choice for this product; -1 when there is none yet. */
int strait_cuda_tune_find(const struct strait_cuda_tune *tune,
                          const int64_t product[STRAIT_CUDA_TUNE_NUMBERS]);

/* Adds a line to the record. A full record stays as it is. */
strait_err strait_cuda_tune_note(struct strait_cuda_tune *tune,
                                 const int64_t product[STRAIT_CUDA_TUNE_NUMBERS], int choice);
