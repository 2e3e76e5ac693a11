/* cudnn.h - attention's forward pass by cuDNN, where it is present: docs/decisions/017.
 *
 * bf16, causal, grouped heads; queries, keys and values are read where they lie in qkv. A plan is
 * made when a shape is first met and kept. One thread, that of the backend; its context is current.
 */
#pragma once

#include "backend/cuda/attention.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/cudnn_attention.h"

enum {
    STRAIT_CUDNN_PLANS = 64 // kept; then the oldest goes
};

struct strait_cudnn_plan {
    strait_cudnn_key key;
    void *plan; // NULL in an empty place
    int64_t workspace;
};

struct strait_cudnn {
    struct strait_cudnn_table table;
    void *handle;
    struct strait_cudnn_plan plans[STRAIT_CUDNN_PLANS];
    int n_made; // ever
};

/* Finds and starts cuDNN and has it plan a small attention, so that what cannot work is known here.
 * STRAIT_ENOTSUP says why not, and *out is NULL; close accepts that. */
strait_err strait_cudnn_open(struct strait_cudnn **out);
void strait_cudnn_close(struct strait_cudnn **dnn);

/* y and, where it is wanted, lse. STRAIT_ENOTSUP, in cuDNN's words, when it refuses the shape. */
strait_err strait_cudnn_attention(struct strait_stream *s, const struct strait_attention_args *a);
