/* remote_executor.c - an executor whose stages are processes or threads of this machine: a pipeline
 * over a local channel. */
#include "train/local_channel.h"
#include "train/pipeline.h"

struct remote {
    struct strait_stage_channel channel;
    struct strait_pipeline *pipeline;
};

/* Everything below forwards to the pipeline: whether its stages are processes, threads or workers
 * of a swarm is known to its channel alone. */
static struct strait_pipeline *pipeline_of(struct strait_executor *executor) {
    return ((struct remote *)executor->state)->pipeline;
}

/* The stages measure their passes and links before they allocate slots, because the windows depend
 * on these times. */
static strait_err open_remote(struct strait_executor *executor) {
    struct remote *r = executor->state;
    STRAIT_TRY(strait_local_channel_open(&executor->run, &executor->plan, &r->channel));
    STRAIT_TRY(strait_pipeline_open(executor, &r->channel, &r->pipeline));
    STRAIT_TRY(strait_pipeline_choose_windows(r->pipeline));
    return strait_pipeline_open_stages(r->pipeline, executor->windows, 0);
}

static void close_remote(struct strait_executor *executor) {
    struct remote *r = executor->state;
    strait_stage_channel_close(&r->channel);
    strait_pipeline_close(&r->pipeline);
}

static strait_err gradients(struct strait_executor *executor, int64_t step,
                            strait_executor_report *out) {
    return strait_pipeline_gradients(pipeline_of(executor), step, out);
}

static strait_err update(struct strait_executor *executor, int64_t step, float factor) {
    return strait_pipeline_update(pipeline_of(executor), step, factor);
}

static strait_err average(struct strait_executor *executor, int64_t done,
                          strait_executor_report *out) {
    return strait_pipeline_average(pipeline_of(executor), done, out);
}

static strait_err validate(struct strait_executor *executor, int64_t step, double *loss_sum) {
    return strait_pipeline_validate(pipeline_of(executor), step, loss_sum);
}

static strait_err write_files(struct strait_executor *executor, const char *folder, int64_t step) {
    return strait_pipeline_save(pipeline_of(executor), folder, step);
}

static strait_err read_files(struct strait_executor *executor,
                             struct strait_checkpoint *checkpoint) {
    return strait_pipeline_load(pipeline_of(executor), checkpoint);
}

static strait_err trace(struct strait_executor *executor, const char *path) {
    return strait_pipeline_trace(pipeline_of(executor), path);
}

const struct strait_executor_ops strait_remote_executor = {
    .state_size = sizeof(struct remote),
    .open = open_remote,
    .close = close_remote,
    .gradients = gradients,
    .update = update,
    .average = average,
    .validate = validate,
    .write = write_files,
    .read = read_files,
    .trace = trace,
};
