/* tune.h - algorithms of matrix products chosen by timing, and recorded in a file.
 *
 * Without a record the library's first proposal is used, which is the same in every run. With one,
 * a product that is in it uses the recorded proposal; another is timed on first use and added. Runs
 * that read the same record compute the same bits. A record is valid for one kind of device and one
 * version of the library. */
#pragma once

#include "backend/cuda/info.h"
#include "base/error.h"

#include <stdint.h>

enum {
    STRAIT_CUDA_TUNE_NUMBERS = 12,  // that identify a product
    STRAIT_CUDA_TUNE_PRODUCTS = 512 // most products of a record
};

/* A line of the record. A product is its sizes, types, transposes and alignments. */
typedef struct strait_cuda_tuned {
    int64_t product[STRAIT_CUDA_TUNE_NUMBERS];
    int64_t choice; // which proposal, from 0
} strait_cuda_tuned;

struct strait_cuda_tune {
    char path[STRAIT_CUDA_PATH];
    int n_known;
    strait_cuda_tuned known[STRAIT_CUDA_TUNE_PRODUCTS];
};

/* Reads the record at `path`; an absent file is an empty record. STRAIT_EDATA names the first
 * invalid line. The caller closes it. */
strait_err strait_cuda_tune_open(const char *path, struct strait_cuda_tune **out);
void strait_cuda_tune_close(struct strait_cuda_tune **tune); // accepts NULL

/* The recorded proposal for this product; -1 if there is none. */
int strait_cuda_tune_find(const struct strait_cuda_tune *tune,
                          const int64_t product[STRAIT_CUDA_TUNE_NUMBERS]);

/* Appends a line to the record and its file. A full record is left unchanged. */
strait_err strait_cuda_tune_note(struct strait_cuda_tune *tune,
                                 const int64_t product[STRAIT_CUDA_TUNE_NUMBERS], int choice);
