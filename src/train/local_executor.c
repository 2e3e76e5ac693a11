/* local_executor.c - the executor of a run with one stage: the whole model in the calling thread.
 */
#include "stage/runner_state.h"
#include "train/executor.h"

#include <stdio.h>

struct local {
    struct strait_runner *runner;
};

static struct strait_runner *runner_of(struct strait_executor *executor) {
    return ((struct local *)executor->state)->runner;
}

/* One slot is enough: a single stage runs the backward pass of a microbatch right after its forward
 * pass. */
static strait_err open_local(struct strait_executor *executor) {
    struct local *local = executor->state;
    executor->windows[0] = 1;
    STRAIT_TRY(strait_runner_open(&executor->run, &executor->plan,
                                  &(strait_runner_place){.n_slots = 1}, executor->loader,
                                  &local->runner));
    STRAIT_TRY(strait_runner_init_weights(local->runner, (uint64_t)executor->run.train.seed));
    (void)snprintf(executor->device, sizeof executor->device, "%s",
                   strait_runner_device(local->runner));
    return STRAIT_OK;
}

/* The loader is the trainer's and stays open. */
static void close_local(struct strait_executor *executor) {
    strait_runner_close(&((struct local *)executor->state)->runner);
}

/* A single stage has nothing to wait for, so what limits it is always its own computation. */
static strait_err gradients(struct strait_executor *executor, int64_t step,
                            strait_executor_report *out) {
    int n = 0;
    strait_executor_report report = {.limit = {.name = "compute", .where = 0}};
    STRAIT_TRY(strait_runner_gradients(runner_of(executor), step, &report.loss_sum));
    const float *squares = strait_runner_squares(runner_of(executor), &n);
    report.norm = strait_executor_norm(squares, n);
    report.is_updated = strait_runner_updates_itself(runner_of(executor));
    executor->device_bytes[0] = strait_runner_device_bytes(runner_of(executor));
    *out = report;
    return STRAIT_OK;
}

static strait_err update(struct strait_executor *executor, int64_t step, float factor) {
    return strait_runner_update(runner_of(executor), step, factor);
}

static strait_err validate(struct strait_executor *executor, int64_t step, double *loss_sum) {
    return strait_runner_validate(runner_of(executor), step, loss_sum);
}

static strait_err write_files(struct strait_executor *executor, const char *folder, int64_t step) {
    return strait_runner_state_write(runner_of(executor), folder, step, 0);
}

static strait_err read_files(struct strait_executor *executor,
                             struct strait_checkpoint *checkpoint) {
    return strait_runner_state_read(checkpoint, runner_of(executor));
}

/* The interface has one entry for both ends of a trace; a path means that it ends. */
static strait_err trace(struct strait_executor *executor, const char *path) {
    if (path == NULL) return strait_runner_trace_begin(runner_of(executor));
    return strait_runner_trace_end(runner_of(executor), path);
}

const struct strait_executor_ops strait_local_executor = {
    .state_size = sizeof(struct local),
    .survives_data_error = 1, // reading comes before the update, in this thread
    .open = open_local,
    .close = close_local,
    .gradients = gradients,
    .update = update,
    .validate = validate,
    .write = write_files,
    .read = read_files,
    .trace = trace,
};
