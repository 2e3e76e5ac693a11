/* hf_read.h - the weights of a Hugging Face folder as tensors of this program, one at a time. */
#pragma once

#include "convert/hf_config.h"
#include "convert/hf_folder.h"
#include "convert/hf_names.h"

/* A folder whose files hold exactly the model that its config.json describes. */
struct strait_hf_model {
    strait_hf_config config;
    struct strait_hf_folder *folder;
    strait_hf_tensor *tensors; // in the order of checkpoints
    int n_tensors;
};

/* Opens a folder and checks that every tensor is there, in f32, f16 or bf16 and with the right
 * shape, and that no other one is. STRAIT_EDATA names the first that is not. `out` is zeroed
 * before; the caller calls close, also after an error. */
strait_err strait_hf_model_open(const char *path, struct strait_hf_model *model);
void strait_hf_model_close(struct strait_hf_model *model);

/* Reads tensor i as f32 into `out`, which has space for all its values. STRAIT_EDATA: a value is
 * not finite. */
strait_err strait_hf_model_read(const struct strait_hf_model *model, int i, float *out);

/* The number of values of the largest tensor. */
int64_t strait_hf_model_largest(const struct strait_hf_model *model);
