/* files.c - checkpoints and traces of stages that share a disk with the coordinator. */
#include "base/alloc.h"
#include "base/file.h"
#include "train/pipeline/pipeline_state.h"

#include <stdlib.h>
#include <unistd.h>

/* All replicas of a stage must hold the same: they have applied the same updates. */
static strait_err compare_replicas(const struct strait_pipeline *p, int64_t step) {
    if (strait_run_plan_has_outer(plan_of(p))) return STRAIT_OK; // until the next average
    for (int i = 0; i < p->n_stages; i++)
        for (int k = 1; k < plan_of(p)->replicas[i]; k++)
            if (!strait_digest_equal(&reply_of(p, i)[0].save.digest,
                                     &reply_of(p, i)[k].save.digest))
                return STRAIT_FAIL(STRAIT_EDATA,
                                   "stage %d: replicas 0 and %d have different weights after step "
                                   "%lld; resume from the last checkpoint, on devices of one kind",
                                   i, k, (long long)step);
    return STRAIT_OK;
}

/* A failed save is returned by the stages as a result, not as a failure of the channel: the run
 * continues and tries again at the next checkpoint. One replica of each stage writes all, and those
 * that train on their own what they alone have. */
strait_err strait_pipeline_save(struct strait_pipeline *p, const char *folder, int64_t step) {
    const int has_outer = strait_run_plan_has_outer(plan_of(p));
    char real[STRAIT_PATH_MAX];
    if (realpath(folder, real) == NULL)
        return STRAIT_FAIL(STRAIT_EIO, "%s: no such folder", folder);
    for (int i = 0; i < p->channel->n_members; i++) {
        int stage, replica;
        strait_run_plan_locate(plan_of(p), i, &stage, &replica);
        if (is_lost(p, replica)) continue;
        const int is_first = replica == first_replica(p);
        const strait_stage_command command = {
            .kind = STRAIT_COMMAND_SAVE,
            .save = {.step = step,
                     .folder = is_first || has_outer ? real : "",
                     .wants_digest = !has_outer && plan_of(p)->replicas[stage] > 1,
                     .is_partial = !is_first}};
        STRAIT_TRY(p->channel->ops->send(p->channel, i, &command));
    }
    STRAIT_TRY(p->channel->ops->gather(p->channel));
    for (int i = 0; i < p->channel->n_members; i++) {
        const strait_stage_reply *reply = &p->channel->replies.items[i];
        int stage, replica;
        strait_run_plan_locate(plan_of(p), i, &stage, &replica);
        if (is_lost(p, replica)) continue;
        if (reply->err != STRAIT_OK) return STRAIT_FAIL(reply->err, "%s", reply->reason);
    }
    p->executor->lost = p->channel->lost;
    return compare_replicas(p, step);
}

strait_err strait_pipeline_load(struct strait_pipeline *p, struct strait_checkpoint *checkpoint) {
    char real[STRAIT_PATH_MAX];
    if (realpath(strait_checkpoint_path(checkpoint), real) == NULL)
        return STRAIT_FAIL(STRAIT_EIO, "%s: the checkpoint no longer exists",
                           strait_checkpoint_path(checkpoint));
    const strait_stage_command command = {.kind = STRAIT_COMMAND_LOAD, .load = {real}};
    STRAIT_TRY(strait_pipeline_command_all(p, &command));
    return strait_run_plan_has_outer(plan_of(p)) ? strait_pipeline_resume_average(p, checkpoint)
                                                 : STRAIT_OK;
}

/* Every member writes a file of its own beside the one that joins them. */
static strait_err write_traces(struct strait_pipeline *p, const char *path,
                               char (*files)[STRAIT_PATH_MAX]) {
    for (int i = 0; i < p->channel->n_members; i++) {
        int stage, replica;
        strait_run_plan_locate(plan_of(p), i, &stage, &replica);
        STRAIT_TRY(strait_file_path(files[i], "%s.stage-%d", path, i));
        if (is_lost(p, replica)) continue;
        const strait_stage_command command = {.kind = STRAIT_COMMAND_TRACE_END,
                                              .trace_end = {files[i]}};
        STRAIT_TRY(p->channel->ops->send(p->channel, i, &command));
    }
    return p->channel->ops->gather(p->channel);
}

strait_err strait_pipeline_trace(struct strait_pipeline *p, const char *path) {
    const strait_stage_command begin = {.kind = STRAIT_COMMAND_TRACE_BEGIN};
    char(*files)[STRAIT_PATH_MAX] = NULL;
    const char *paths[STRAIT_RUN_MEMBERS];
    const int64_t offsets[STRAIT_RUN_MEMBERS] = {0}; // one machine, one clock
    const int n = p->channel->n_members;
    if (path == NULL) return strait_pipeline_command_all(p, &begin);
    STRAIT_TRY(strait_alloc((size_t)n, sizeof *files, "trace files", (void **)&files));
    strait_err err = write_traces(p, path, files);
    int n_written = 0;
    for (int i = 0; i < n; i++) {
        int stage, replica;
        strait_run_plan_locate(plan_of(p), i, &stage, &replica);
        if (!is_lost(p, replica)) paths[n_written++] = files[i];
    }
    if (err == STRAIT_OK) err = strait_trace_merge(paths, offsets, n_written, path);
    for (int i = 0; i < n; i++)
        (void)unlink(files[i]);
    strait_alloc_free(files);
    return err;
}
