/* feed.h - the token ids of a run, brought to the device microbatch by microbatch.
 *
 * Which ids make a microbatch follows from the run's seed and the step alone (data/sampler.h), so
 * every stage feeds itself from its own copy of the shards. */
#pragma once

#include "backend/backend.h"
#include "config/run_plan.h"
#include "data/corpus.h"
#include "data/sampler.h"

struct strait_loader;

/* Opens the run's shards and checks them against each other, the tokenizer and model.vocab. */
strait_err strait_loader_open(const strait_run *run, struct strait_loader **out);
void strait_loader_close(struct strait_loader **loader); // accepts NULL

/* A feed without shards, for a machine that has none: every microbatch is given to it before it is
 * loaded, validation too, of which there are `valid_windows` sequences. */
strait_err strait_loader_open_given(int64_t vocab, int64_t valid_windows,
                                    struct strait_loader **out);

/* Takes one microbatch, microbatch * context ids each; where NULL, nobody here reads them. A step
 * replaces the one before. STRAIT_EPROTO for ids outside the vocabulary or places that are none;
 * targets may be -1, none. After cut. */
strait_err strait_loader_give(struct strait_loader *loader, int64_t step, int64_t microbatch,
                              const int32_t *tokens, const int32_t *targets);
strait_err strait_loader_give_valid(struct strait_loader *loader, int64_t batch,
                                    const int32_t *tokens, const int32_t *targets);

/* The ids themselves, for whoever gives them to others. After cut. */
strait_err strait_loader_draw(struct strait_loader *loader, int64_t step, int64_t microbatch,
                              int32_t *tokens, int32_t *targets);
strait_err strait_loader_draw_valid(struct strait_loader *loader, int64_t batch, int32_t *tokens,
                                    int32_t *targets);
int64_t strait_loader_valid_windows(
    const struct strait_loader *loader); // sequences of a validation

/* What the data say the vocabulary is, and the fingerprint of their tokenizer ("" if unknown). */
int64_t strait_loader_vocab(const struct strait_loader *loader);
const char *strait_loader_tokenizer(const struct strait_loader *loader);
int64_t strait_loader_train_tokens(const struct strait_loader *loader);

/* How the tokens are cut into microbatches. Before anything below. */
strait_err strait_loader_cut(struct strait_loader *loader, const strait_run_plan *plan);

/* Makes room for n_slots microbatches on the device. Before load. */
strait_err strait_loader_prepare(struct strait_loader *loader, struct strait_backend *backend,
                                 int n_slots);
void strait_loader_release(struct strait_loader *loader);                    // gives that room back
size_t strait_loader_device_bytes(const strait_run_plan *plan, int n_slots); // that room

/* The same with what lies on the host. */
size_t strait_loader_bytes(const strait_run_plan *plan, int n_slots);

/* Brings microbatch `microbatch` of `step` into a slot. No allocation. */
strait_err strait_loader_load(struct strait_loader *loader, struct strait_stream *stream, int slot,
                              int64_t step, int64_t microbatch);

/* Validation: how many microbatches and how many tokens count; then one of them. Rows past the end
 * have no target. */
int64_t strait_loader_valid_batches(const struct strait_loader *loader);
int64_t strait_loader_valid_tokens(const struct strait_loader *loader);
strait_err strait_loader_load_valid(struct strait_loader *loader, struct strait_stream *stream,
                                    int slot, int64_t batch);

/* [N x 1] i32 on the device. */
strait_tensor strait_loader_tokens(const struct strait_loader *loader, int slot);
strait_tensor strait_loader_targets(const struct strait_loader *loader, int slot);
