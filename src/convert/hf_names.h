/* hf_names.h - the tensors of a plain model, and how Hugging Face's classes name and divide them.
 *
 * No tensor is transposed or permuted. Two of ours are several of theirs, one after the other:
 * attention.qkv_bias is the biases of q_proj, k_proj and v_proj; attention.qk_gain is q_norm and
 * k_norm. */
#pragma once

#include "model/shape.h"
#include "tensor/param.h"

enum {
    STRAIT_HF_PARTS = 3, // most tensors of theirs that one of ours consists of
    STRAIT_HF_NAME = 96
};

typedef struct strait_hf_part {
    char name[STRAIT_HF_NAME];
    int64_t rows, cols; // rows 1: a vector
} strait_hf_part;

typedef struct strait_hf_tensor {
    char name[STRAIT_PARAM_NAME];
    int64_t rows, cols;
    strait_hf_part parts[STRAIT_HF_PARTS];
    int n_parts;
} strait_hf_tensor;

/* Lists all tensors of a model without optional parts, in the order of
 * checkpoints. The caller frees *out with strait_alloc_free. */
strait_err strait_hf_names_list(const strait_shape *shape, strait_hf_tensor **out, int *n);

/* Whether a tensor of theirs carries nothing: a copy of the embedding where the head is tied, or
 * the angles that early Llama files had. */
int strait_hf_names_is_idle(const strait_shape *shape, const char *name);
