/* cudnn.h - attention's forward pass by cuDNN, where it is present: docs/decisions/017.
 *
 * bf16, causal, grouped heads; queries, keys and values are read in place from qkv. A plan is
 * created for each new shape and kept. Called by the backend's thread, with its context current. */
#pragma once

#include "backend/cuda/attention.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/cudnn_attention.h"

enum {
    STRAIT_CUDNN_PLANS = 64 // plans kept; then the oldest is replaced
};

struct strait_cudnn_plan {
    strait_cudnn_key key;
    void *plan; // NULL in an empty slot
    int64_t workspace;
};

struct strait_cudnn {
    struct strait_cudnn_table table;
    void *handle;
    struct strait_cudnn_plan plans[STRAIT_CUDNN_PLANS];
    int n_created; // ever
};

/* Finds and starts cuDNN and lets it plan a small attention, so that a cuDNN that cannot work is
 * found here. STRAIT_ENOTSUP says why, and *out is NULL; close accepts NULL. */
strait_err strait_cudnn_open(struct strait_cudnn **out);
void strait_cudnn_close(struct strait_cudnn **dnn);

/* Computes y and, if a->lse is set, lse. STRAIT_ENOTSUP with cuDNN's text when it rejects the
 * shape. */
strait_err strait_cudnn_attention(struct strait_stream *s, const struct strait_attention_args *a);
