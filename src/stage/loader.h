/* loader.h - brings the token ids of a run to the device, microbatch by microbatch.
 *
 * The ids of a microbatch follow from the run's seed and the step alone (data/sampler.h), so every
 * stage reads them from its own copy of the shards. A worker without shards uses a
 * remote loader, which receives the ids from the coordinator instead. A loader is used by one
 * thread at a time. Call order: open, configure, prepare, then load. */
#pragma once

#include "backend/backend.h"
#include "config/run_plan.h"
#include "data/corpus.h"
#include "data/sampler.h"
#include "model/layer.h"

struct strait_loader;

/* Opens the run's shards and checks them against each other, the tokenizer and model.vocab.
 * STRAIT_ECONFIG, STRAIT_EDATA or STRAIT_EIO name the option or file at fault. */
strait_err strait_loader_open(const strait_run *run, struct strait_loader **out);
void strait_loader_close(struct strait_loader **loader); // accepts NULL

/* Opens a remote loader, for a worker without shards: the caller puts the ids of every microbatch
 * into it before it is loaded. A validation has `valid_windows` sequences. */
strait_err strait_loader_open_remote(int64_t vocab, int64_t valid_windows,
                                     struct strait_loader **out);

/* Copies the ids of one microbatch (microbatch * context of each kind) into a remote loader. Either
 * pointer may be NULL if this stage does not read it. The first microbatch of another step discards
 * the previous step. Targets may be -1: no loss at that position. STRAIT_EPROTO for ids outside the
 * vocabulary or a microbatch out of range: the ids come from the network. Requires configure. */
strait_err strait_loader_put(struct strait_loader *loader, int64_t step, int64_t microbatch,
                             const int32_t *tokens, const int32_t *targets);
strait_err strait_loader_put_valid(struct strait_loader *loader, int64_t batch,
                                   const int32_t *tokens, const int32_t *targets);

/* Writes the ids of one microbatch to host memory, for a caller that sends them to other workers.
 * STRAIT_EPROTO if a remote loader has not received them. Requires configure. */
strait_err strait_loader_draw(struct strait_loader *loader, int64_t step, int64_t microbatch,
                              int32_t *tokens, int32_t *targets);
strait_err strait_loader_draw_valid(struct strait_loader *loader, int64_t batch, int32_t *tokens,
                                    int32_t *targets);

/* STRAIT_EDATA names a shard that was truncated since it was opened. Reads no ids. */
strait_err strait_loader_check(const struct strait_loader *loader);

/* Number of sequences in a validation. */
int64_t strait_loader_valid_windows(const struct strait_loader *loader);

/* Vocabulary size from model.vocab, the tokenizer or the shards, whichever states it first. */
int64_t strait_loader_vocab(const struct strait_loader *loader);

/* Fingerprint of the tokenizer of the training shards; "" if unknown. Borrowed. */
const char *strait_loader_tokenizer(const struct strait_loader *loader);

/* Tokens in the training shards; 0 without shards. */
int64_t strait_loader_train_tokens(const struct strait_loader *loader);

/* Says which sources the training data is mixed from, with their shares, or how many documents it
 * has; "" for one source of text. */
void strait_loader_describe(const struct strait_loader *loader, char *out, size_t capacity);

/* Sets how tokens are divided into sequences and microbatches; copies the plan. STRAIT_EDATA for
 * shards shorter than one sequence. Required by everything below. */
strait_err strait_loader_configure(struct strait_loader *loader, const strait_run_plan *plan);

/* Allocates n_slots microbatches on the device and the host buffers they are copied from. The
 * backend is borrowed until release, which frees all of it. Required by load. */
strait_err strait_loader_prepare(struct strait_loader *loader, struct strait_backend *backend,
                                 int n_slots);
void strait_loader_release(struct strait_loader *loader);

/* Bytes that prepare allocates: on the device alone, and with the host buffers. */
size_t strait_loader_device_bytes(const strait_run_plan *plan, int n_slots);
size_t strait_loader_bytes(const strait_run_plan *plan, int n_slots);

/* Queues the copy of one microbatch of `step` into a slot on the device. Allocates nothing. */
strait_err strait_loader_load(struct strait_loader *loader, struct strait_stream *stream, int slot,
                              int64_t step, int64_t microbatch);

/* Counts the targets of a step that are not -1: all tokens, unless the data has documents with
 * prompts. STRAIT_EPROTO: a remote loader has received only a part of such a step. */
strait_err strait_loader_step_targets(const struct strait_loader *loader, int64_t step,
                                      int64_t *out);
/* The same of a validation. */
strait_err strait_loader_valid_targets(const struct strait_loader *loader, int64_t *out);

/* Microbatches of a validation, and the tokens in it that count; 0 without validation shards. */
int64_t strait_loader_valid_batches(const struct strait_loader *loader);
int64_t strait_loader_valid_tokens(const struct strait_loader *loader);

/* Like load, for microbatch `batch` of the validation. Rows past the end have targets of -1. */
strait_err strait_loader_load_valid(struct strait_loader *loader, struct strait_stream *stream,
                                    int slot, int64_t batch);

/* The documents that share rows in a slot; none unless the plan packs. Valid until the slot is
 * loaded again. */
strait_documents strait_loader_documents(const struct strait_loader *loader, int slot);

/* Inputs and targets of a slot, [N x 1] i32 on the device; valid until release. */
strait_tensor strait_loader_tokens(const struct strait_loader *loader, int slot);
strait_tensor strait_loader_targets(const struct strait_loader *loader, int slot);
