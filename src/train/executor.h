/* crew.h - the stages of a run, wherever they are: one here, or several in processes or threads.
 *
 * To the trainer a crew is one machine that makes gradients, updates, validates, saves and loads.
 * One thread uses a crew. Any error leaves it fit only for close, but one of write. */
#pragma once

#include <strait/trainer.h>

#include "config/run_plan.h"
#include "stage/loader.h"
#include "stage/runner.h"
#include "store/checkpoint.h"

typedef struct strait_executor_report {
    double loss_sum; // of all tokens of the step
    double norm;     // of all gradients
    /* Of the step, at the socket, worst boundary; 0 with one stage. */
    double forward_bytes, backward_bytes;
    double bubble; // share of the step in which the stages waited, mean
    /* What the codec of each boundary lost, as a share: of activations, of gradients. */
    double residual_forward[STRAIT_RUN_STAGES], residual_backward[STRAIT_RUN_STAGES];
    const char *limit; // what held the step up
    double metered_s;  // of the gradients, on the meter; 0: there is none
    int is_updated;    // the update follows by itself, unless the norm is not finite
} strait_executor_report;

struct strait_executor {
    const struct strait_executor_ops *ops;
    strait_run_plan plan;
    strait_run run;
    struct strait_loader *loader; // borrowed
    char device[STRAIT_TRAINER_DEVICE];
    uint64_t device_bytes[STRAIT_RUN_STAGES]; // taken by each stage where that is not the host
    int windows[STRAIT_RUN_STAGES];           // slots of each stage
    double planned_tokens_per_s;              // what the plan expects; 0 with one stage
    int64_t step;                             // steps its stages have done when open returns
    void *user;                               // for a crew that came from outside this room
    void *state;
};

struct strait_executor_ops {
    size_t state_size;
    strait_err (*open)(struct strait_executor *executor);
    void (*close)(struct strait_executor *executor); // accepts what a failed open leaves
    strait_err (*gradients)(struct strait_executor *executor, int64_t step,
                            strait_executor_report *out);
    strait_err (*update)(struct strait_executor *executor, int64_t step, float factor);
    strait_err (*validate)(struct strait_executor *executor, int64_t step, double *loss_sum);
    /* Into a checkpoint that was begun. */
    strait_err (*write)(struct strait_executor *executor, const char *folder, int64_t step);
    strait_err (*read)(struct strait_executor *executor, struct strait_checkpoint *checkpoint);
    /* Begins a trace (path NULL), or writes what was kept since as one of all stages. */
    strait_err (*trace)(struct strait_executor *executor, const char *path);
    /* Runs what blocks for as long as a disk does, while the crew is served; NULL: it can wait. */
    strait_err (*run_async)(struct strait_executor *executor, strait_err (*run)(void *arg),
                            void *arg);
};

extern const struct strait_executor_ops strait_local_executor; // one stage, in this thread
extern const struct strait_executor_ops
    strait_remote_executor; // several, each in its own process or thread

/* A kind of crew that is not of this room, and what it needs to know. */
typedef struct strait_executor_choice {
    const struct strait_executor_ops *ops; // NULL: one of the two above, by the number of stages
    void *user;
} strait_executor_choice;

struct strait_trainer;

/* strait_trainer_open with another crew. */
strait_err strait_trainer_open_with(const strait_run *run, strait_executor_choice choice,
                                    struct strait_trainer **out);

/* Calls run(arg), which may take as long as a disk takes, while the crew's links are served. */
strait_err strait_trainer_run_async(struct strait_trainer *trainer, strait_err (*run)(void *arg),
                                    void *arg);

/* Keeps `feed`. */
strait_err strait_executor_open(strait_executor_choice choice, const strait_run *run,
                                const strait_run_plan *plan, struct strait_loader *loader,
                                struct strait_executor **out);
void strait_executor_close(struct strait_executor **executor); // accepts NULL

/* What a gradient of this norm is multiplied with, so that none is larger than `limit`; 0: any. */
float strait_executor_factor(double limit, double norm);

/* The norm of gradients whose sums of squares stand parameter by parameter in the order of the
 * model: the same bits whatever the cut into stages. */
double strait_executor_norm(const float *squares, int n);
