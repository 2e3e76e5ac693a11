/* checkpoint.c - checkpoints of a swarm, stage by stage, from snapshots that the owners send. */
#include "base/alloc.h"
#include "base/file.h"
#include "stage/outer/outer_tensors.h"
#include "swarm/host/state.h"

enum {
    WRITE_MS = 5 // per poll, so that a finished write is noticed at once
};

struct writing {
    struct strait_snapshot snapshot;
    const char *folder;
    int64_t step;
    const strait_run_plan *plan;
    strait_digest digest; // that the owner reported
};

/* The digest binds the owner: what others restore from the checkpoint is what copies would be. */
static strait_err write_snapshot(void *arg) {
    struct writing *w = arg;
    STRAIT_TRY(strait_snapshot_match(&w->snapshot, w->plan));
    STRAIT_TRY(strait_snapshot_check_finite(&w->snapshot));
    STRAIT_TRY(strait_snapshot_check_digest(&w->snapshot, &w->digest));
    return strait_snapshot_write(&w->snapshot, w->folder, w->step);
}

static strait_err pump(struct host *h) {
    return strait_host_pump(h, WRITE_MS);
}

/* Collects the snapshot of one stage and writes it. STRAIT_EAGAIN: the stages were restored, so
 * that all have to be collected again. */
static strait_err write_stage(struct strait_executor *executor, int stage, const char *folder,
                              int64_t step) {
    struct host *h = executor->user;
    const strait_stage_command command = {.kind = STRAIT_COMMAND_SEND_SNAPSHOT,
                                          .send_snapshot = {step}};
    STRAIT_TRY(strait_stage_channel_command_one(
        &h->work.channel, strait_run_plan_member(&executor->plan, stage, 0), &command));
    struct connection *connection = strait_host_connection(h, h->coordinator.owner[stage]);
    /* A loss that was noticed together with the reply may have given the stage to another worker,
     * which was asked for nothing. */
    if (connection == NULL || h->coordinator.phase != STRAIT_PHASE_READY || h->work.has_rolled_back)
        return STRAIT_EAGAIN;
    /* While it is written the owner may leave, and another worker take its slot. */
    const strait_fingerprint owner = h->coordinator.workers[h->coordinator.owner[stage]].key;
    const strait_snapshot_record *record = strait_snapshot_records_find(
        &h->coordinator.records[stage], step);
    struct writing w = {
        .snapshot = connection->snapshot, .folder = folder, .step = step, .plan = &executor->plan};
    connection->snapshot = (struct strait_snapshot){
        0}; // ours now: the connection may close before it is written
    w.snapshot.stage = stage;
    if (record != NULL) w.digest = record->digest; // else no bytes match
    strait_err err = strait_host_check_folder(h);
    if (err == STRAIT_OK) err = strait_host_run_async(h, write_snapshot, &w, pump);
    /* A snapshot comes from the owner of the stage directly, so no one else can be at fault. */
    if (err == STRAIT_ENONFINITE || err == STRAIT_EDATA || err == STRAIT_EPROTO) {
        strait_host_note(h, "%s", strait_err_detail());
        const int slot = strait_coordinator_find(&h->coordinator, &owner);
        if (slot >= 0)
            strait_host_feed_coordinator(
                h, &(strait_swarm_event){.kind = STRAIT_SWARM_INVALID_DATA, .worker = slot});
        err = STRAIT_EAGAIN;
    }
    strait_snapshot_fini(&w.snapshot);
    return err;
}

strait_err strait_host_write(struct strait_executor *executor, const char *folder, int64_t step) {
    struct host *h = executor->user;
    STRAIT_TRY(step >= executor->run.train.steps ? strait_host_audit_finish(h)
                                                 : strait_host_audit_check(h));
    /* After a rollback all stages are collected again: snapshots of one step belong together. */
    for (int i = 0; i < executor->plan.n_stages;) {
        STRAIT_TRY(strait_host_replay_to(executor, step));
        const strait_err err = write_stage(executor, i, folder, step);
        if (err != STRAIT_OK && err != STRAIT_EAGAIN) return err;
        i = err == STRAIT_OK ? i + 1 : 0;
    }
    h->checkpoint.saving = step;
    return STRAIT_OK;
}

void strait_host_adopt_checkpoint(struct host *h) {
    char path[STRAIT_PATH_MAX];
    if (h->checkpoint.saving < 0) return;
    if (strait_file_path(path, "%s/checkpoints/%08lld/manifest.json", h->spec->folder,
                         (long long)h->checkpoint.saving) == STRAIT_OK &&
        strait_file_exists(path))
        h->coordinator.checkpoint = h->checkpoint.saving;
    h->checkpoint.saving = -1;
}

strait_err strait_host_open_checkpoint(struct host *h, const char *folder,
                                       struct strait_checkpoint **out) {
    strait_checkpoint_request request = {.folder = folder};
    const strait_err err = strait_host_run_async(h, strait_checkpoint_open_valid, &request,
                                                 strait_host_keep_alive);
    if (err != STRAIT_OK) strait_checkpoint_close(&request.checkpoint);
    *out = request.checkpoint;
    return err;
}

/* A run that `strait train` began has checkpoints and no entries in the metastore, so its newest
 * checkpoint can be ahead of the committed steps. */
strait_err strait_host_find_checkpoint(struct host *h) {
    struct strait_checkpoint *checkpoint = NULL;
    int64_t *steps = NULL;
    int n = 0;
    STRAIT_TRY(strait_checkpoint_list(h->spec->folder, &steps, &n));
    strait_alloc_free(steps);
    if (n == 0) return STRAIT_OK;
    STRAIT_TRY(strait_host_open_checkpoint(h, h->spec->folder, &checkpoint));
    h->coordinator.checkpoint = strait_checkpoint_step(checkpoint);
    if (h->coordinator.checkpoint > h->coordinator.committed)
        h->coordinator.committed = h->coordinator.checkpoint;
    h->averages.unsent_at = strait_checkpoint_has(checkpoint, STRAIT_OUTER_IN_FLIGHT)
                                ? -1
                                : h->coordinator.checkpoint;
    strait_checkpoint_close(&checkpoint);
    return STRAIT_OK;
}
