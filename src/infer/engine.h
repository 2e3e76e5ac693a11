/* engine.h - generates the tokens of several sequences at a time from one trained model.
 *
 * Sequences come and go between steps. A step computes the next token of every sequence that has
 * read its prompt and, in the rows that remain, further tokens of prompts; a few rows are kept for
 * prompts, so that they are read however many sequences there are. The tokens of a sequence
 * depend on its request alone, not on what else is generated (model/generator.h).
 *
 * One thread uses an engine. */
#pragma once

#include "infer/trained_model.h"

struct strait_engine;

typedef struct strait_engine_spec {
    int64_t n_sequences; // at a time, at most
    int64_t n_positions; // tokens of a sequence that the caches hold; 0: the model's context
} strait_engine_spec;

/* How tokens are drawn: strait_sample_row has the meaning of the limits. */
typedef struct strait_sampling {
    double temperature, top_p, min_p, penalty;
    int64_t top_k;
    uint64_t seed; // the same seed gives the same tokens
} strait_sampling;

/* STRAIT_ECONFIG, naming the setting, if one is out of its bounds. */
strait_err strait_sampling_check(const strait_sampling *sampling);

/* Gets a token that was drawn. Returns whether the sequence goes on; if not, it is removed. */
typedef int (*strait_engine_on_token)(void *user, int32_t token);

typedef struct strait_engine_request {
    const int32_t *ids; // what the sequence begins with, at least one; copied
    int64_t n_ids;
    int64_t n_tokens; // to draw, at most
    strait_sampling sampling;
    strait_engine_on_token on_token;
    void *user;
} strait_engine_request;

/* Prepares the model, which must not be used otherwise until close. STRAIT_ENOMEM if the caches do
 * not fit. The caller closes the engine. */
strait_err strait_engine_open(struct strait_trained_model *trained, strait_engine_spec spec,
                              struct strait_engine **out);
void strait_engine_close(struct strait_engine **engine); // accepts NULL

/* Starts a sequence; *slot identifies it until it is removed, and is -1 where there is no room for
 * one. STRAIT_EDATA for a token outside the vocabulary. */
strait_err strait_engine_add(struct strait_engine *engine, const strait_engine_request *request,
                             int *slot);
void strait_engine_remove(struct strait_engine *engine, int slot);
int strait_engine_count(const struct strait_engine *engine); // sequences at work

/* Computes one step and delivers the tokens that it drew. Does nothing without sequences. A
 * sequence whose context is full continues with the newer half of its tokens. */
strait_err strait_engine_step(struct strait_engine *engine);
