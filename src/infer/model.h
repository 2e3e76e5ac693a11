/* model.h - what the parts of strait_model (strait/model.h) share: evaluation and generation. */
#pragma once

#include <strait/model.h>

#include "infer/trained_model.h"

struct strait_model {
    struct strait_trained_model *trained; // prepared for whatever was used last
    char device[256];                     // a description for people
};

/* STRAIT_ECONFIG unless the model has a tokenizer. */
strait_err strait_model_need_tokenizer(const struct strait_model *model);
