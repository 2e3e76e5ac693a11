/* describe.h - what a checkpoint says of the model it holds: shape, cut and codec.
 *
 * Shape alone makes weights fit; cut and codec say which function the stages compute together, so
 * that a model trained as a pipeline is read back as the same pipeline. */
#pragma once

#include "config/run_plan.h"
#include "store/checkpoint.h"

enum {
    STRAIT_DESCRIBE_PAIRS = 48,
    STRAIT_DESCRIBE_TEXT = 512
};

typedef struct strait_description {
    strait_safetensors_pair pairs[STRAIT_DESCRIBE_PAIRS];
    char texts[STRAIT_DESCRIBE_PAIRS][STRAIT_DESCRIBE_TEXT];
    int n;
} strait_description;

/* As the text pairs of a manifest. */
void strait_describe(const strait_run_plan *plan, strait_description *out);

/* Back again: shape, n_stages, parts and codec of a recipe; the rest is zero. */
strait_err strait_describe_read(const struct strait_checkpoint *checkpoint, strait_run_plan *out);

/* Refuses a checkpoint of another shape or tokenizer, and, where a codec is part of the model, of
 * another cut or codec, naming the first difference. An empty fingerprint on either side means
 * unknown and matches. */
strait_err strait_describe_check(const struct strait_checkpoint *checkpoint,
                                 const strait_run_plan *plan, const char *tokenizer);
