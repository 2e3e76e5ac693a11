/* description.h - what a checkpoint's manifest says about its model: shape, split and codec.
 *
 * The shape decides which weights fit. The split into stages and the codec decide which function
 * the stages compute together, so a model that was trained as a pipeline is read back as the same
 * pipeline. Which options are saved is a column of run_options.def. */
#pragma once

#include "config/run_plan.h"
#include "store/checkpoint.h"

enum {
    STRAIT_DESCRIBE_PAIRS = 56,
    STRAIT_DESCRIBE_TEXT = 512
};

typedef struct strait_description {
    strait_safetensors_pair pairs[STRAIT_DESCRIBE_PAIRS];
    char texts[STRAIT_DESCRIBE_PAIRS][STRAIT_DESCRIBE_TEXT];
    int n;
} strait_description;

/* Writes the plan's model as the text pairs of a manifest. */
void strait_describe(const strait_run_plan *plan, strait_description *out);

/* Reads shape, n_stages, stage_layers and codec of a plan from a manifest; the rest is zero.
 * STRAIT_EDATA names the key that is missing or invalid. Manifests of earlier versions are
 * accepted. */
strait_err strait_describe_read(const struct strait_checkpoint *checkpoint, strait_run_plan *out);

/* Rejects (STRAIT_EDATA) a checkpoint of another shape or tokenizer and, where a codec is part of
 * the model, of another split or codec; the error names the first difference. `tokenizer` is a
 * fingerprint; an empty one on either side is unknown and matches. */
strait_err strait_describe_check(const struct strait_checkpoint *checkpoint,
                                 const strait_run_plan *plan, const char *tokenizer);
