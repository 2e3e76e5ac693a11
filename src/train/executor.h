/* executor.h - runs the stages of a run, wherever they are.
 *
 * The trainer asks an executor for gradients, updates, validation, saving and loading, and need not
 * know whether the stages share its thread, are processes or threads of this machine, or belong to
 * the workers of a swarm. One thread uses an executor. After an error of any function except
 * `write` an executor can only be closed, unless `survives_data_error` is set. */
#pragma once

#include <strait/trainer.h>

#include "config/run_plan.h"
#include "stage/limits.h"
#include "stage/loader.h"
#include "stage/runner.h"
#include "store/checkpoint.h"

/* The results of the gradients of one step. */
typedef struct strait_executor_report {
    double loss_sum; // over all tokens of the step
    double norm;     // of all gradients
    /* Of the step, at the socket, of the busiest boundary; 0 with one stage. */
    double forward_bytes, backward_bytes;
    double reduce_bytes; // received by a replica from others of its stage, where that is most
    double bubble;       // share of the step in which stages waited, averaged over stages
    /* Relative error of each boundary's codec, for activations and for gradients. */
    double residual_forward[STRAIT_RUN_STAGES], residual_backward[STRAIT_RUN_STAGES];
    /* Codecs with a basis: of each boundary; and of the basis, which is the same on all stages. */
    double leak[STRAIT_RUN_STAGES], corrections[STRAIT_RUN_STAGES];
    double basis_angle, basis_mean_angle, basis_error;
    strait_step_limit limit; // the bottleneck of the step
    /* With several stages, of each; bytes are those that crossed the boundary behind it. */
    strait_step_times times[STRAIT_RUN_STAGES];
    double boundary_forward[STRAIT_RUN_STAGES], boundary_backward[STRAIT_RUN_STAGES];
    const strait_simulate_span *spans; // limit.n_spans, borrowed until the next step
    double metered_s; // duration on the emulated meter (link.meter); 0: no meter is set
    /* Of the last average of replicas that train on their own after this step: who took part, as
     * bits (0: there was none); bytes that one received per token of its own since the average
     * before; and the distance of the replicas from their mean, relative to the weights. */
    uint64_t average_members;
    double average_bytes_per_token, divergence;
    int is_updated; // the update is queued already; the device skips it if the norm is not finite
} strait_executor_report;

struct strait_executor {
    const struct strait_executor_ops *ops;
    strait_run_plan plan;
    strait_run run;
    struct strait_loader *loader; // borrowed
    char device[STRAIT_TRAINER_DEVICE];
    uint64_t device_bytes[STRAIT_RUN_STAGES]; // GPU memory of each stage; 0 on a CPU
    int windows[STRAIT_RUN_STAGES];           // microbatches that each stage may hold
    double planned_tokens_per_s;              // as planned from measured times; 0 with one stage
    int64_t step;                             // steps that the stages had done when open returned
    int keeps_first; // stages may return to the checkpoint of step 0: it is never removed
    int continues;   // the caller asks for nothing else before the next step: it may begin early
    uint64_t lost;   // replicas that the run goes on without, as bits
    char note[640];  // for people, about the last step; empty: nothing
    void *user;      // from strait_executor_choice
    void *state;     // ops->state_size bytes, zeroed before open
};

struct strait_executor_ops {
    size_t state_size;       // of executor->state
    int survives_data_error; // after STRAIT_EDATA from gradients, write saves the steps before
    strait_err (*open)(struct strait_executor *executor);
    void (*close)(struct strait_executor *executor); // also after a failed open
    /* Forward and backward of all microbatches of `step`, from 0. */
    strait_err (*gradients)(struct strait_executor *executor, int64_t step,
                            strait_executor_report *out);
    /* Ends `step`: updates the weights with gradients multiplied by `factor`. */
    strait_err (*update)(struct strait_executor *executor, int64_t step, float factor);
    /* After each step, updated or not, `done` in all: adds the averages that were due to the
     * report. NULL: replicas never train on their own. */
    strait_err (*average)(struct strait_executor *executor, int64_t done,
                          strait_executor_report *out);
    /* The summed loss over the validation data after `step` steps. */
    strait_err (*validate)(struct strait_executor *executor, int64_t step, double *loss_sum);
    /* Writes the files of all stages into a checkpoint that was begun. */
    strait_err (*write)(struct strait_executor *executor, const char *folder, int64_t step);
    /* Restores all stages from a checkpoint. */
    strait_err (*read)(struct strait_executor *executor, struct strait_checkpoint *checkpoint);
    /* Begins a trace (path NULL), or writes the trace of all stages since then. */
    strait_err (*trace)(struct strait_executor *executor, const char *path);
    /* Calls run(arg), which may block on a disk, while links to the stages are served. NULL: the
     * stages do not mind the wait, so run(arg) is called directly. */
    strait_err (*run_async)(struct strait_executor *executor, strait_err (*run)(void *arg),
                            void *arg);
};

extern const struct strait_executor_ops strait_local_executor;  // one stage, in the calling thread
extern const struct strait_executor_ops strait_remote_executor; // several, in processes or threads

/* An executor of another module, and its argument. */
typedef struct strait_executor_choice {
    const struct strait_executor_ops *ops; // NULL: local or remote, by the number of stages
    void *user;
} strait_executor_choice;

struct strait_trainer;

/* strait_trainer_open with an executor of the caller's choice. */
strait_err strait_trainer_open_with(const strait_run *run, strait_executor_choice choice,
                                    struct strait_trainer **out);

/* Calls run(arg), which may block on a disk, while links to the stages are served. */
strait_err strait_trainer_run_async(struct strait_trainer *trainer, strait_err (*run)(void *arg),
                                    void *arg);

/* The next call of strait_trainer_step will be followed by another one, with no validation and no
 * checkpoint between: with late updates (train.staleness) that step may begin early. Whether one
 * has: then nothing but another step is possible. */
void strait_trainer_continue(struct strait_trainer *trainer);
int strait_trainer_is_ahead(const struct strait_trainer *trainer);

/* STRAIT_EDATA if the data of the run was truncated since it was opened. Called between steps, so
 * that the run can be saved before a stage fails on it. */
strait_err strait_trainer_check_data(const struct strait_trainer *trainer);

/* Whether the steps so far can be saved after strait_trainer_step returned `err`: no stage has
 * changed its weights since. */
int strait_trainer_can_save_after(const struct strait_trainer *trainer, strait_err err);

/* From now on the trainer checks before it installs a checkpoint that the folder is still owned.
 * Borrows the lock until close. */
void strait_trainer_guard(struct strait_trainer *trainer, struct strait_folder_lock *lock);

/* Opens an executor, which borrows `loader` until close. */
strait_err strait_executor_open(strait_executor_choice choice, const strait_run *run,
                                const strait_run_plan *plan, struct strait_loader *loader,
                                struct strait_executor **out);
void strait_executor_close(struct strait_executor **executor); // accepts NULL

/* Lists the files that `write` has written, at most STRAIT_RUN_STAGES + STRAIT_RUN_MEMBERS, and
 * returns how many. The first replica that is not lost has written weights and state of its stage,
 * each of the others that train on their own a file of its own. */
int strait_executor_list_files(const struct strait_executor *executor,
                               strait_checkpoint_stage_file *files);

/* The factor that clips gradients of this norm to `limit`; a limit of 0 never clips. */
float strait_executor_factor(double limit, double norm);

/* The norm of all gradients from one sum of squares per parameter, in the order of the model.
 * Summing per parameter gives the same bits for any split into stages. */
double strait_executor_norm(const float *squares, int n);
