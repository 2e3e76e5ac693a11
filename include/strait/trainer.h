/* trainer.h - train a run in this process, one step at a time.
 *
 *     strait_run run;
 *     struct strait_trainer *trainer = NULL;
 *     strait_run_load("run.yaml", NULL, 0, &run);
 *     strait_trainer_open(&run, &trainer);
 *     while (strait_trainer_step_count(trainer) < run.train.steps)
 *         strait_trainer_step(trainer, &report);
 *     strait_trainer_save(trainer, "runs/mine");
 *     strait_trainer_close(&trainer);
 *
 * One thread uses a trainer. The same run gives the same bits, step by step, also across
 * save and load. */
#pragma once

#include <strait/error.h>
#include <strait/run.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct strait_trainer;

/* Bytes a run will take, before it takes them. */
typedef struct strait_trainer_memory {
    size_t weights, gradients, optimizer, activations, data;
    size_t codecs;   // weights, gradients and rooms of the boundaries
    size_t messages; // between stages, waiting for a link or for their turn
    size_t program;  // what its processes need apart from all that
    size_t total;
} strait_trainer_memory;

/* One stage, and what it takes on its device, which is the host's memory where that computes. */
typedef struct strait_trainer_stage {
    int layers, slots; // slots: microbatches in flight; before open, as far as one can tell
    size_t planned;    // bytes
    size_t used;       // on a device that is not the host, once it has made a step; 0 otherwise
} strait_trainer_stage;

enum {
    STRAIT_TRAINER_DEVICE = 128
}; // bytes that name what a run computes on

typedef struct strait_trainer_info {
    int64_t parameters;
    int64_t vocab;
    int64_t train_tokens, valid_tokens;
    int64_t microbatch, n_microbatches; // sequences in one, and how many in a step
    double flops_per_token;             // products and attention, those of the codecs included
    char device[STRAIT_TRAINER_DEVICE]; // empty before open
    char precision[64];  // "bf16", or "fp32", with the reason where one would expect bf16
    size_t device_bytes; // taken where that is not the host, by all stages; 0 otherwise
    strait_trainer_memory memory;
    int n_stages;
    strait_trainer_stage stages[STRAIT_RUN_STAGES];
} strait_trainer_info;

typedef struct strait_trainer_report {
    int64_t step; // how many steps are done, this one included
    double loss, rate, grad_norm;
    double seconds, tokens_per_s;
    /* At the socket, worst boundary, and how much less that is than plain 16-bit activations; all
     * zero with one stage. */
    double forward_bytes_per_token, backward_bytes_per_token;
    double ratio_forward, ratio_backward;
    double bubble; // share of the step in which the stages waited
    /* What the codec of each boundary lost, as a share of what it packed: of activations, of
     * gradients. Borrowed until the next step. */
    int n_boundaries;
    const double *residual_forward, *residual_backward;
    const char *alarm;    // NULL, or words on a boundary that loses more than it used to; borrowed
    const char *limit;    // what held the step up: "compute", "bubble", "serialisation", ...
    double meter_seconds; // the step on the meter of Protocol NanoGPT; 0: link.meter.rate is 0
    int is_skipped;       // the gradient was not finite: the weights were left as they were
} strait_trainer_report;

/* What a run would be, without making it. */
strait_err strait_trainer_plan(const strait_run *run, strait_trainer_info *out);

/* Opens data and device and makes the first weights. */
strait_err strait_trainer_open(const strait_run *run, struct strait_trainer **out);
void strait_trainer_close(struct strait_trainer **trainer); // sets *trainer to NULL; accepts NULL

void strait_trainer_describe(const struct strait_trainer *trainer, strait_trainer_info *out);
int64_t strait_trainer_step_count(const struct strait_trainer *trainer);

/* One optimizer update. STRAIT_ENONFINITE when too many steps in a row had to be skipped. */
strait_err strait_trainer_step(struct strait_trainer *trainer, strait_trainer_report *out);

/* Mean loss over the validation data. */
strait_err strait_trainer_validate(struct strait_trainer *trainer, double *loss);

/* Saves a checkpoint into FOLDER/checkpoints and drops old ones beyond run.train.keep_checkpoints.
 */
strait_err strait_trainer_save(struct strait_trainer *trainer, const char *folder);

/* Goes on from the newest checkpoint in FOLDER. *note is NULL, or says in words which damaged
 * newer ones were passed over; borrowed until the next load. */
strait_err strait_trainer_load(struct strait_trainer *trainer, const char *folder,
                               const char **note);

/* Keeps what every stage does from now on; then writes it as one Chrome trace, with a process for
 * each stage. */
strait_err strait_trainer_trace_begin(struct strait_trainer *trainer);
strait_err strait_trainer_trace_end(struct strait_trainer *trainer, const char *path);

#ifdef __cplusplus
}
#endif
