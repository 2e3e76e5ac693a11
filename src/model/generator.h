/* generator.h - runs a stage on single tokens, with a cache of the keys and values of the tokens
 * before them, so that a new token costs no pass over its whole sequence.
 *
 * A step takes a few rows, each the token of one sequence at one position: the next tokens of
 * several sequences, or several tokens of one. What a row computes does not depend on the other
 * rows: on a cpu a step has exactly the rows that it was given, on a device always the same number,
 * because its products depend on it.
 *
 * Borrows the weights of a stage: the whole model, or one stage of a chain that passes each step
 * on. One thread. Nothing allocates after open. */
#pragma once

#include "model/stage.h"

struct strait_generator;

typedef struct strait_generator_spec {
    int64_t n_sequences; // kept at a time
    int64_t n_positions; // of a sequence: at most, and by default (0), the model's context
    int64_t n_rows;      // of a step, at most; the stage must have been opened for as many tokens
} strait_generator_spec;

/* A row of a step. Rows of one sequence are in the order of their positions, and every position
 * before them was a row of this step or of an earlier one. */
typedef struct strait_token_row {
    int32_t token, sequence, position;
} strait_token_row;

/* Keeps `stage` until close. STRAIT_ENOMEM if the caches do not fit. */
strait_err strait_generator_open(struct strait_stage *stage, strait_generator_spec spec,
                                 struct strait_generator **out);
void strait_generator_close(struct strait_generator **generator); // accepts NULL

/* One step: begin (the first stage computes the input, others only keep the tokens), or write the
 * input; run the blocks; read the output or, on the last stage, sample or read the logits. begin
 * returns STRAIT_EDATA for a token outside the vocabulary, STRAIT_EINVAL for a row that is outside
 * the caches or for too many rows. The tensors are valid until the next step; those of a device
 * have rows beyond the n that were given, without meaning. */
strait_err strait_generator_begin(struct strait_generator *g, const strait_token_row *rows,
                                  int64_t n);
strait_tensor strait_generator_input(struct strait_generator *g); // [n x D], or [n x k] of a code
/* As strait_stage_first_block_input; valid after run. */
strait_tensor strait_generator_first_block_input(struct strait_generator *g);
strait_tensor strait_generator_tokens(struct strait_generator *g); // [n x 1] i32
strait_err strait_generator_run(struct strait_generator *g);
strait_err strait_generator_output(struct strait_generator *g, strait_tensor *out);

/* Draws the token after each of the first n rows of the step, as `how` says, whose soft cap is set
 * here. Waits for the device. STRAIT_EINVAL on a stage without the head. */
strait_err strait_generator_sample(struct strait_generator *g, const strait_sample_row *how,
                                   int64_t n, int32_t *tokens);
/* Which tokens of the vocabulary count as seen in a sequence, one byte each, for the penalty. */
strait_err strait_generator_set_seen(struct strait_generator *g, int64_t sequence,
                                     const unsigned char *seen);

/* Logits [n x V] of the first n rows in host memory, soft-capped as in training; valid until the
 * next call. Waits for the device. STRAIT_EINVAL on a stage without the head. */
strait_err strait_generator_logits(struct strait_generator *g, int64_t n, const float **logits);

/* begin, run and logits of the next token of sequence 0, for a stage that holds the whole model.
 * reset starts that sequence anew. */
strait_err strait_generator_feed(struct strait_generator *g, int32_t token, const float **logits);
void strait_generator_reset(struct strait_generator *g);
int64_t strait_generator_position(const struct strait_generator *g); // tokens fed since then
