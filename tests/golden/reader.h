/* reader.h - reads the golden files of tools/make-golden.py. Anything unexpected fails the test. */
#pragma once

#include "check.h"
#include "store/safetensors.h"

#include <stdlib.h>

static inline const char *golden_text(const struct strait_safetensors *golden, const char *key) {
    const char *text = strait_safetensors_metadata(golden, key);
    if (text == NULL) fail_msg("the golden file has no metadata %s", key);
    return text;
}

static inline double golden_number(const struct strait_safetensors *golden, const char *key) {
    return strtod(golden_text(golden, key), NULL);
}

/* A read-only view of a tensor in the file: one row unless it has two dimensions. */
static inline strait_tensor golden_tensor(const struct strait_safetensors *golden,
                                          const char *name) {
    const strait_safetensor *found = strait_safetensors_find(golden, name);
    if (found == NULL) {
        fail_msg("the golden file has no tensor %s", name);
        abort(); // not reached; tells the static analyser so
    }
    assert_int_equal((uintptr_t)found->data % sizeof(float), 0);
    return (strait_tensor){
        .data = (void *)found->data,
        .dtype = strcmp(found->dtype, "I32") == 0 ? STRAIT_I32 : STRAIT_F32,
        .rows = found->n_dims == 2 ? found->dims[0] : 1,
        .cols = found->dims[found->n_dims - 1],
    };
}
