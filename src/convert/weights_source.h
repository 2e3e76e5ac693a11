/* weights_source.h - the weights of a checkpoint as a model without boundaries has them.
 *
 * With codec subspace, variant factored, stages before the last store the embedding and the output
 * projections as coordinates in a basis: they are multiplied out here. Adapters (train.lora) are
 * merged into their matrices. All other tensors are read as they are. */
#pragma once

#include "backend/backend.h"
#include "config/run_plan.h"
#include "store/checkpoint.h"

struct strait_weights_source {
    const struct strait_checkpoint *checkpoint; // borrowed
    const strait_run_plan *plan;                // borrowed
    struct strait_backend *backend;             // owns the memory of the basis; NULL without
    struct strait_stream stream;
    int has_stream;
    struct strait_codec *codec; // holds basis and fixed
    strait_tensor basis, fixed; // [d x k], [vocab x d]; absent without coordinates
};

/* Prepares to read; `source` is zeroed before. The caller calls close, also after an error.
 * STRAIT_ENOTSUP: the model has no equal without boundaries. */
strait_err strait_weights_source_open(struct strait_checkpoint *checkpoint,
                                      const strait_run_plan *plan,
                                      struct strait_weights_source *source);
void strait_weights_source_close(struct strait_weights_source *source);

/* Replaces the shape of a tensor that is stored as coordinates by the shape that it has when they
 * are multiplied out. */
void strait_weights_source_shape(const struct strait_weights_source *source, const char *name,
                                 int64_t *rows, int64_t *cols);

/* Whether a codec that confines weights to a subspace confines this one: the embedding, and output
 * projections of stages before the last. */
int strait_weights_source_is_confined(const strait_run_plan *plan, const char *name);

/* Whether a tensor is a side of an adapter, which the other tensors contain when they are read. */
int strait_weights_source_is_adapter(const char *name);

/* Reads a tensor [rows x cols], multiplied out where it is stored as coordinates. STRAIT_EDATA if
 * it is missing or has another shape. */
strait_err strait_weights_source_read(const struct strait_weights_source *source, const char *name,
                                      int64_t rows, int64_t cols, float *out);

/* The values of such a tensor where they are stored, if they are stored as they are read; NULL: it
 * has to be read. Borrowed from the checkpoint. */
const float *strait_weights_source_view(const struct strait_weights_source *source,
                                        const char *name, int64_t rows, int64_t cols);
