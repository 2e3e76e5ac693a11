/* part.h - what every part of the model provides, and in which order.
 *
 * Fixed parts are in every model: embedding, attention, mlp, head, and the bottleneck, which
 * belongs to a codec. block.c composes those of one transformer layer, stage.c adds embedding and
 * head. A fixed part X has an X.h and declares, as far as it applies:
 *
 *   strait_X                 pointers to its parameters; NULL where this block has none
 *   strait_X_acts            activations of one microbatch that the backward pass needs
 *   strait_X_scratch         memory that all blocks use in turn
 *
 *   strait_X_add_params      lists its parameters: name, role, shape (param_list.h)
 *   strait_X_plan_acts       plans the activations of n_tokens tokens into a slab
 *   strait_X_forward         computes its output and fills the activations
 *   strait_X_backward        turns the gradient of the output into that of the input
 *   strait_X_weight_grads    adds the gradients of its matrices
 *
 * An optional part changes a tensor [N x D] at one place of a block: it is one table of operations,
 * struct strait_part_ops below, and one row in parts.def. block.c applies all that are present.
 *
 * Rules that all of them keep:
 * - Nothing allocates: memory is planned into slabs once, before the first pass.
 * - Calls only queue work on work->stream. One thread uses a stage.
 * - A tensor without data ("absent") means that the optional input is not there.
 * - backward comes after forward of the same microbatch and may overwrite its activations.
 * - weight_grads is separate from backward so that a schedule can send the input gradient first and
 *   compute the weight gradients later ("deferred"). Gradients of gains and of convolutions, which
 *   their kernels compute together with the input gradient, are added by backward itself, and so
 * are all gradients of optional parts.
 * - In generation a row must not depend on the others: matrix products pass work->is_rowwise on.
 * - Names of parameters are part of the checkpoint format and never change. */
#pragma once

#include "model/layer.h"
#include "model/param_list.h"

/* The tensor that an optional part changes. */
typedef enum strait_part_place {
    STRAIT_PART_STREAM,        // the residual stream, before the block reads it
    STRAIT_PART_ATTENTION_OUT, // attention's output, before it is added to the stream
    STRAIT_PART_MLP_OUT,       // the mlp's output, before it is added to the stream
} strait_part_place;

enum {
    STRAIT_PART_PARAMS = 4, // largest number of parameters of an optional part
    STRAIT_PART_ACTS = 4    // and of the tensors that it keeps for backward besides its input
};

/* The optional parts by number, in the order of parts.def; the last is their count. */
typedef enum strait_part_index {
#define PART(name, place, members) STRAIT_PART_INDEX_##name,
#include "model/parts/parts.def"
    STRAIT_PARTS
} strait_part_index;

/* A parameter of an optional part, "blocks.N.NAME" in checkpoints. The role decides its initial
 * values (weights.c), its learning rate and its weight decay. */
typedef struct strait_part_param {
    const char *name;
    strait_role role;
    int64_t rows, cols;
} strait_part_param;

/* An optional part of one block. */
typedef struct strait_part {
    int is_present;
    strait_param *params[STRAIT_PART_PARAMS]; // in the order in which `params` lists them
} strait_part;

typedef struct strait_part_acts {
    strait_tensor input;                  // [N x D]; absent unless the part keeps it
    strait_tensor kept[STRAIT_PART_ACTS]; // planned by plan_acts
    strait_tensor past; // in generation: what the part keeps of earlier tokens; else absent
} strait_part_acts;

/* The operations of an optional part. Entries that are 0 or NULL are not needed. */
struct strait_part_ops {
    const char *option; // that turns it on, for messages: "model.NAME"
    /* Backward reads the input: it is kept in acts->input, and forward writes its output elsewhere.
     * Otherwise forward works in place. */
    int keeps_input;
    int needs_scratch; // in backward
    int reads_tokens;  // work->table_ids, for strait_layer_table_add
    unsigned needs;    // optional kernels (enum strait_kernel_need)

    /* Whether block i of the model has the part. */
    int (*is_in_block)(const strait_shape *shape, int i);
    /* Describes its parameters in one block and returns their number. */
    int (*params)(const strait_shape *shape, strait_part_param out[STRAIT_PART_PARAMS]);
    /* Plans acts->kept. What a part of the stream keeps is kept also when activations are
     * recomputed: it runs once per microbatch. */
    strait_err (*plan_acts)(const strait_shape *shape, int64_t n_tokens, struct strait_slab *slab,
                            strait_part_acts *acts);
    /* Rows of acts->past [sequences rows x D] per sequence, for a part that reads earlier tokens:
     * generation computes only new ones (strait_layer_conv). */
    int64_t (*past_rows)(const strait_shape *shape);

    /* y from x [N x D]; y is x unless the part keeps its input. */
    strait_err (*forward)(const strait_work *work, const strait_part *part,
                          const strait_part_acts *acts, strait_tensor y, strait_tensor x);
    /* forward from x + delta, for a part that works in place and can save a pass over memory. */
    strait_err (*forward_sum)(const strait_work *work, const strait_part *part, strait_tensor y,
                              strait_tensor x, strait_tensor delta);
    /* Replaces d, the gradient of y, by that of x, and adds the gradients of the parameters.
     * `scratch` [N x D] is absent unless the part needs it. */
    strait_err (*backward)(const strait_work *work, const strait_part *part,
                           const strait_part_acts *acts, strait_tensor d, strait_tensor scratch);
};

#define PART(name, place, members) extern const struct strait_part_ops strait_part_##name;
#include "model/parts/parts.def"
