/* trainer.h - train a run from this process, one step at a time.
 *
 *     struct strait_run *run = NULL;
 *     struct strait_trainer *trainer = NULL;
 *     strait_trainer_report report;
 *     strait_run_load("run.yaml", NULL, 0, &run);
 *     strait_trainer_open(run, &trainer);
 *     for (int i = 0; i < 100; i++)
 *         strait_trainer_step(trainer, &report);
 *     strait_trainer_save(trainer, "runs/mine");
 *     strait_trainer_close(&trainer);
 *     strait_run_close(&run);
 *
 * session.h trains a whole run in its folder instead, with metrics, validation and checkpoints.
 *
 * One stage runs in the calling thread and its pool; several run in processes (program.h) or, with
 * link.transport inproc, in threads. One thread at a time uses a trainer. The same run computes the
 * same bits, step by step, also across save and load. After an error of any function but save, a
 * trainer can only be closed. */
#pragma once

#include <strait/error.h>
#include <strait/run.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct strait_trainer;

/* Bytes of memory that a run needs, computed before they are allocated. */
typedef struct strait_trainer_memory {
    size_t weights, gradients, optimizer, activations, data;
    size_t codecs;   // weights, gradients and scratch of the boundaries
    size_t messages; // between stages: queued for a link, or received and not yet used
    size_t program;  // code, stacks and libraries of all processes
    size_t total;
    size_t cache; // part of data: pages of the shards, which the system drops if memory is short
} strait_trainer_memory;

/* One stage and its memory on its device; for the cpu backend that is host memory. */
typedef struct strait_trainer_stage {
    int layers;
    int ordinal;     // which device of the run's kind
    int slots;       // microbatches in flight; an estimate before open
    int replicas;    // processes or threads that hold it; slots and bytes are of each
    double reduced;  // bytes that each sends to the others in a step
    double averaged; // bytes that each sends in one interval of train.outer; 0: there is none
    size_t planned;  // bytes
    size_t used;     // bytes, on a device other than the host and after a step; 0 otherwise
} strait_trainer_stage;

enum {
    STRAIT_TRAINER_DEVICE = 128, // bytes for the name of a device
    STRAIT_TRAINER_PRECISION = 192,
    STRAIT_TRAINER_SOURCES = 1024
};

typedef struct strait_trainer_info {
    int64_t parameters; // trained ones, those of codecs included
    int64_t vocab;
    int64_t train_tokens, valid_tokens;       // of the data
    char sources[STRAIT_TRAINER_SOURCES];     // of a mixture, with their shares; empty: one source
    int64_t microbatch, n_microbatches;       // sequences per microbatch, microbatches per step
    double flops_per_token;                   // matrix products and attention, codecs included
    char device[STRAIT_TRAINER_DEVICE];       // empty before open
    char precision[STRAIT_TRAINER_PRECISION]; // "fp32 (avx512)"; with the reason if unexpected
    size_t device_bytes;                      // sum of stages[].used
    strait_trainer_memory memory;
    int n_stages;
    int staleness; // steps that updates are late
    int n_late;    // stages, from the first, whose updates are late
    strait_trainer_stage stages[STRAIT_RUN_STAGES];
    int64_t table_rows; // of token and value tables; 0: one per token id
} strait_trainer_info;

/* What a stage or a link does in a stretch of a step. */
typedef enum strait_trainer_span_kind {
    STRAIT_SPAN_FORWARD,
    STRAIT_SPAN_BACKWARD,   // gradients of inputs and weights together
    STRAIT_SPAN_INPUT,      // of inputs alone
    STRAIT_SPAN_WEIGHTS,    // of weights alone
    STRAIT_SPAN_UPDATE,     // the optimizer
    STRAIT_SPAN_ACTIVATION, // on the link to the next stage
    STRAIT_SPAN_GRADIENT,   // on the link to the previous stage
} strait_trainer_span_kind;

typedef struct strait_trainer_span {
    strait_trainer_span_kind kind;
    int stage, microbatch; // -1: all microbatches
    double start_s, end_s; // since the step began
} strait_trainer_span;

/* How long one stage computed and waited in a step, and what crossed the boundary behind it. */
typedef struct strait_trainer_stage_step {
    double forward_s, backward_s, codec_s, wait_s, wall_s;
    double forward_bytes, backward_bytes; // 0 on the last stage
} strait_trainer_stage_step;

/* The seconds that a step would be shorter without each cost. */
typedef struct strait_trainer_costs {
    double compute, bubble, serialisation, propagation, codec, links;
    double reduction; // sums of gradients over the replicas of a stage
} strait_trainer_costs;

/* What one step computed and how fast. Pointers are borrowed until the next step. */
typedef struct strait_trainer_report {
    int64_t step; // steps done, this one included
    double loss, learning_rate, grad_norm;
    double seconds, tokens_per_s;
    /* At the socket, of the busiest boundary, and 16-bit activations divided by that; all zero with
     * one stage. */
    double forward_bytes_per_token, backward_bytes_per_token;
    double ratio_forward, ratio_backward;
    double bubble;       // share of the step in which stages were idle, mean over stages
    int staleness;       // steps that the update of this step is late (train.staleness)
    double reduce_bytes; // received by a replica from others of its stage, where that is most
    /* With train.outer, if weights were averaged after this step: the replicas that took part, as
     * bits (0: no average); bytes that one received per token of its own since the average before;
     * and the distance of the replicas from their mean, relative to the size of the weights. */
    uint64_t averaged;
    double average_bytes_per_token, divergence;
    /* Per boundary, the share of activations and of gradients that its codec lost. */
    int n_boundaries;
    const double *residual_forward, *residual_backward;
    /* Codec subspace; `leak` is NULL for others. Per boundary, the share of activations outside the
     * subspace and how often weights were projected because of it; then the largest and the mean
     * principal angle of the last basis update in radians, and the largest entry of U^T U - I. */
    const double *leak, *corrections;
    double basis_angle, basis_mean_angle, basis_error;
    const char *warning;        // a boundary that loses more than it used to, or whose weights were
                                // projected back to their subspace; NULL: there is none
    const char *limit;          // the bottleneck: "compute", "bubble", "serialisation", ...
    int limit_where;            // the stage or boundary that is the bottleneck; -1: none
    strait_trainer_costs costs; // zero with one stage
    double meter_seconds; // the step on the meter of Protocol NanoGPT; 0: link.meter.rate is 0
    int is_skipped;       // the gradient was not finite: weights were left unchanged
    int64_t tokens;       // trained on so far, also by earlier sessions of the run
    double time;          // seconds since 1970 when the step ended
    /* With several stages; NULL with one. The spans are not measured but simulated from the times
     * of the stages and the plan's links. */
    int n_stages, n_spans;
    const strait_trainer_stage_step *stages;
    const strait_trainer_span *spans;
} strait_trainer_report;

/* Chooses the codec of a run whose link.codec.name is auto (docs/codecs.md) and replaces it; other
 * runs are left as they are. Measures how fast this machine computes, which takes seconds, minutes
 * for a large model on a CPU. `folder`: of the run, or NULL; if it holds a run already, the codec
 * of that is taken instead. `out` receives lines for people about the choice, at most `capacity`
 * bytes; empty: there was nothing to choose. strait_trainer_open and strait_session_run do the same
 * themselves. STRAIT_ECONFIG, STRAIT_EDATA, STRAIT_EDEVICE: the run cannot be planned. */
STRAIT_API strait_err strait_trainer_choose_codec(struct strait_run *run, const char *folder,
                                                  char *out, size_t capacity);

/* Computes sizes and memory of a run without allocating it. A codec that is not chosen yet counts
 * as none. Opens the data. STRAIT_ECONFIG: the run cannot be trained; the detail names the key. */
STRAIT_API strait_err strait_trainer_plan(const struct strait_run *run, strait_trainer_info *out);

/* Compares the memory of a run with what is free: on this machine, in its control group (cgroup),
 * and on its device, which is opened for that. STRAIT_ENOMEM: the run does not fit; the detail
 * names up to three changes of keys, each of which makes it fit. STRAIT_EDEVICE, STRAIT_ENOTSUP:
 * the device cannot be used. Otherwise the errors of strait_trainer_plan. */
STRAIT_API strait_err strait_trainer_check_memory(const struct strait_run *run);

/* Opens data and device, initialises the weights and starts the stages. The run is copied.
 * STRAIT_ECONFIG, STRAIT_EDATA, STRAIT_EDEVICE, STRAIT_ENOMEM: the detail names the key, file or
 * device. */
STRAIT_API strait_err strait_trainer_open(const struct strait_run *run,
                                          struct strait_trainer **out);

/* Ends the stages and releases the trainer, without saving. Sets *trainer to NULL; accepts NULL in
 * it. */
STRAIT_API void strait_trainer_close(struct strait_trainer **trainer);

/* Describes an open trainer: as strait_trainer_plan, with the device and the memory in use. */
STRAIT_API void strait_trainer_describe(const struct strait_trainer *trainer,
                                        strait_trainer_info *out);

/* How many steps are done, those before a load included. */
STRAIT_API int64_t strait_trainer_step_count(const struct strait_trainer *trainer);

/* Trains one step: one optimizer update over train.batch_tokens tokens. STRAIT_ENONFINITE: too many
 * steps in a row were skipped because their gradient was not finite. STRAIT_ECLOSED,
 * STRAIT_ETIMEDOUT: a stage was lost. */
STRAIT_API strait_err strait_trainer_step(struct strait_trainer *trainer,
                                          strait_trainer_report *out);

/* Computes the mean loss over the validation data. STRAIT_EINVAL: the run has none. */
STRAIT_API strait_err strait_trainer_validate(struct strait_trainer *trainer, double *loss);

/* Saves a checkpoint into FOLDER/checkpoints and removes old ones beyond train.keep_checkpoints. On
 * error (STRAIT_EIO: a full disk) older checkpoints are unchanged and training may continue. */
STRAIT_API strait_err strait_trainer_save(struct strait_trainer *trainer, const char *folder);

/* Continues from the newest undamaged checkpoint in FOLDER. *note is NULL, or says which damaged
 * newer ones were skipped, for people; borrowed until the next load. STRAIT_EDATA: there is none,
 * or it is of another model. */
STRAIT_API strait_err strait_trainer_load(struct strait_trainer *trainer, const char *folder,
                                          const char **note);

/* Begins to record what every stage does, and writes the record as a Chrome trace with one process
 * per stage. */
STRAIT_API strait_err strait_trainer_trace_begin(struct strait_trainer *trainer);
STRAIT_API strait_err strait_trainer_trace_end(struct strait_trainer *trainer, const char *path);

#ifdef __cplusplus
}
#endif
