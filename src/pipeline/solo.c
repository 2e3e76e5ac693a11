/* solo.c - a crew of one: the whole model in this thread. */
#include "pipeline/crew.h"
#include "pipeline/snapshot.h"

#include <stdio.h>

struct solo {
    struct strait_worker *worker;
};

static struct strait_worker *worker_of(struct strait_crew *crew) {
    return ((struct solo *)crew->state)->worker;
}

static strait_err open_solo(struct strait_crew *crew) {
    struct solo *solo = crew->state;
    crew->windows[0] = 1;
    STRAIT_TRY(strait_worker_open(&crew->run, &crew->recipe, 0, 1, crew->feed, &solo->worker));
    STRAIT_TRY(strait_worker_draw(solo->worker, (uint64_t)crew->run.train.seed));
    (void)snprintf(crew->device, sizeof crew->device, "%s", strait_worker_device(solo->worker));
    return STRAIT_OK;
}

static void close_solo(struct strait_crew *crew) {
    strait_worker_close(&((struct solo *)crew->state)->worker);
}

static strait_err gradients(struct strait_crew *crew, int64_t step, strait_crew_report *out) {
    int n = 0;
    strait_crew_report report = {.limit = "compute"};
    STRAIT_TRY(strait_worker_gradients(worker_of(crew), step, &report.loss_sum));
    const float *squares = strait_worker_squares(worker_of(crew), &n);
    report.norm = strait_crew_norm(squares, n);
    report.is_updated = strait_worker_updates_itself(worker_of(crew));
    crew->device_bytes[0] = strait_worker_device_bytes(worker_of(crew));
    *out = report;
    return STRAIT_OK;
}

static strait_err update(struct strait_crew *crew, int64_t step, float factor) {
    return strait_worker_update(worker_of(crew), step, factor);
}

static strait_err validate(struct strait_crew *crew, int64_t step, double *loss_sum) {
    return strait_worker_validate(worker_of(crew), step, loss_sum);
}

static strait_err write_files(struct strait_crew *crew, const char *folder, int64_t step) {
    return strait_snapshot_write(worker_of(crew), folder, step);
}

static strait_err read_files(struct strait_crew *crew, struct strait_checkpoint *checkpoint) {
    return strait_snapshot_read(checkpoint, worker_of(crew));
}

static strait_err trace(struct strait_crew *crew, const char *path) {
    if (path == NULL) return strait_worker_trace_begin(worker_of(crew));
    return strait_worker_trace_end(worker_of(crew), path);
}

const struct strait_crew_ops strait_crew_solo = {
    .state_size = sizeof(struct solo),
    .open = open_solo,
    .close = close_solo,
    .gradients = gradients,
    .update = update,
    .validate = validate,
    .write = write_files,
    .read = read_files,
    .trace = trace,
};
