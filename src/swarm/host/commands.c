/* commands.c - what a host sends to the owner of a stage in each phase of the coordinator. */
#include "base/clock.h"
#include "base/file.h"
#include "swarm/host/replicas.h"

#include <string.h>

enum {
    VOCAB_NARROW = 65535,             // ids below this take two bytes
    SNAPSHOT_AHEAD = 8 * 1024 * 1024, // bytes of a snapshot queued for a link at once
    OTHERS_MAX = 16 * 1024 * 1024     // reserved in a send queue for other messages
};

/* Generation and sequence let the reply be matched to this barrier. A message that cannot be packed
 * for lack of memory is like a lost one: the phase times out. */
static void send_task(struct host *h, int worker, strait_task *task) {
    struct strait_msg *msg = NULL;
    struct connection *connection = strait_host_connection(h, worker);
    task->generation = h->coordinator.generation;
    task->sequence = h->coordinator.sequence;
    if (strait_task_pack(h->pool, task, &msg) != STRAIT_OK) return;
    if (connection != NULL) connection->n_owed += strait_task_is_answered(task->kind);
    strait_host_send(h, connection, &msg);
}

void strait_host_send_task(struct host *h, int worker, strait_task_kind kind) {
    send_task(h, worker, &(strait_task){.kind = kind});
}

void strait_host_say_why(struct host *h, int worker, const char *reason) {
    send_task(h, worker, &(strait_task){.kind = STRAIT_TASK_STAY, .stay = {reason}});
}

void strait_host_refuse(struct host *h, struct connection *connection, const char *reason) {
    struct strait_msg *msg = NULL;
    const strait_task task = {.kind = STRAIT_TASK_REFUSE, .refuse = {reason}};
    if (strait_task_pack(h->pool, &task, &msg) == STRAIT_OK) strait_host_send(h, connection, &msg);
    strait_host_disconnect(h, connection, STRAIT_OK, reason);
}

static void send_neighbours(struct host *h, const strait_swarm_action *a) {
    strait_task task = {.kind = h->coordinator.phase == STRAIT_PHASE_LISTEN ? STRAIT_TASK_LISTEN
                                                                            : STRAIT_TASK_CONNECT};
    task.neighbours.timeout_ms = (int)(strait_coordinator_connect_ns(&h->coordinator) / 1000000);
    unsigned char memory[STRAIT_TASK_REPLICAS * sizeof(strait_task_replica)];
    strait_host_describe_neighbours(h, a->stage, a->replica, &task, memory, sizeof memory);
    send_task(h, a->worker, &task);
}

static void send_assign(struct host *h, const strait_swarm_action *a) {
    struct connection *connection = strait_host_connection(h, a->worker);
    strait_task task = {
        .kind = STRAIT_TASK_ASSIGN,
        .assign = {.stage = a->stage,
                   .replicas = strait_host_replicas_of(h, a->stage, a->replica),
                   .valid_windows = strait_loader_valid_windows(h->executor->loader),
                   .commits = h->audits != NULL,
                   .run_text = h->task_text}};
    if (connection != NULL) connection->has_validation_ids = 0;
    send_task(h, a->worker, &task);
}

static void send_command(struct host *h, int worker, strait_stage_command *command) {
    struct strait_msg *msg = NULL;
    struct connection *connection = strait_host_connection(h, worker);
    command->generation = h->coordinator.generation;
    command->sequence = h->coordinator.sequence;
    if (strait_stage_command_pack(h->pool, command, &msg) != STRAIT_OK) return;
    if (connection != NULL) connection->n_owed++;
    strait_host_send(h, connection, &msg);
}

/* ---- token ids ---- */

/* Only stages that need them get ids: the host sends all data of the run over its own link. */
static strait_err send_ids(struct host *h, const strait_swarm_action *a, strait_batch_ids ids) {
    struct strait_msg *msg = NULL;
    const strait_run_plan *plan = &h->executor->plan;
    ids.n = plan->microbatch * plan->shape.context;
    ids.is_wide = plan->shape.vocab >= VOCAB_NARROW || plan->packs; // tags are high bits
    int32_t *targets = h->ids + ids.n;
    STRAIT_TRY(ids.is_valid
                   ? strait_loader_draw_valid(h->executor->loader, ids.batch, h->ids, targets)
                   : strait_loader_draw(h->executor->loader, ids.step, ids.batch, h->ids, targets));
    ids.tokens = strait_run_plan_needs_tokens(plan, a->stage) ? h->ids : NULL;
    ids.targets = a->stage == plan->n_stages - 1 ? targets : NULL;
    if (ids.tokens == NULL && ids.targets == NULL) return STRAIT_OK;
    STRAIT_TRY(strait_batch_ids_pack(h->pool, &ids, &msg));
    h->ids_bytes += msg->size;
    strait_host_send(h, strait_host_connection(h, a->worker), &msg);
    return STRAIT_OK;
}

strait_err strait_host_send_step_ids(struct host *h, int worker, int stage, int64_t step) {
    const strait_swarm_action to = {.worker = worker, .stage = stage};
    for (int64_t i = 0; i < h->executor->plan.n_microbatches; i++)
        STRAIT_TRY(send_ids(h, &to, (strait_batch_ids){.step = step, .batch = i}));
    return STRAIT_OK;
}

/* Those of the groups that one of several replicas computes. The last stage gets all: it counts the
 * targets of the step. */
static strait_err send_share(struct host *h, const strait_swarm_action *a,
                             const strait_stage_command *command) {
    const strait_run_plan *plan = &h->executor->plan;
    const strait_group_owners *owners = &command->gradients.owners[STRAIT_SIDE_SAME];
    const int is_all = plan->replicas[a->stage] == 1 || a->stage == plan->n_stages - 1;
    for (int i = 0; i < plan->n_microbatches; i++)
        if (is_all || owners->replica[strait_groups_of(&plan->groups, i)] == a->replica)
            STRAIT_TRY(
                send_ids(h, a, (strait_batch_ids){.step = command->gradients.step, .batch = i}));
    return STRAIT_OK;
}

/* All ids of a validation are queued for a link at once, so their number is limited. */
strait_err strait_host_check_validation(const struct strait_loader *loader,
                                        const strait_run_plan *plan) {
    const int64_t context = plan->shape.context, n_windows = strait_loader_valid_windows(loader);
    const int64_t id_bytes = plan->shape.vocab >= VOCAB_NARROW || plan->packs ? 4 : 2;
    int64_t most = (STRAIT_HOST_OUT_MAX - OTHERS_MAX) / (2 * id_bytes * context);
    if (most > STRAIT_VALID_MAX) most = STRAIT_VALID_MAX;
    if (n_windows <= most) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ECONFIG,
                       "data.valid: a swarm validates on %lld tokens at most, and there are %lld: "
                       "set data.valid_tokens",
                       (long long)(most * context), (long long)(n_windows * context));
}

static strait_err send_all_ids(struct host *h, const strait_swarm_action *a,
                               const strait_stage_command *command) {
    struct connection *connection = strait_host_connection(h, a->worker);
    if (command->kind == STRAIT_COMMAND_GRADIENTS) STRAIT_TRY(send_share(h, a, command));
    if (command->kind != STRAIT_COMMAND_VALIDATE || connection == NULL ||
        connection->has_validation_ids)
        return STRAIT_OK;
    for (int64_t i = 0; i < strait_loader_valid_batches(h->executor->loader); i++)
        STRAIT_TRY(send_ids(h, a, (strait_batch_ids){.is_valid = 1, .batch = i}));
    connection->has_validation_ids = 1;
    return STRAIT_OK;
}

/* A basis update follows the optimizer's update and changes the weights again, so a snapshot
 * between the two would belong to no step. */
static int must_take_snapshot(const struct host *h, int64_t step) {
    /* A stage that computes alone holds no snapshot that the others have too, until the last. */
    const int is_alone = step < h->coordinator.replay.until;
    if (strait_run_plan_has_outer(&h->executor->plan)) return strait_host_average_snapshot(h, step);
    return !is_alone && (step % h->pace.snapshot_every == 0 || strait_host_audit_is_due(h, step)) &&
           !strait_run_plan_updates_basis(&h->executor->plan, step);
}

static void send_work(struct host *h, const strait_swarm_action *a) {
    const strait_run_plan *plan = &h->executor->plan;
    strait_stage_command *command = &h->work
                                         .queue[strait_run_plan_member(plan, a->stage, a->replica)];
    const strait_err err = send_all_ids(h, a, command);
    if (err != STRAIT_OK) strait_host_fail(h, err);
    if (command->kind == STRAIT_COMMAND_UPDATE) {
        command->update.keep_snapshot = must_take_snapshot(h, command->update.step + 1);
        strait_host_note_update(h, a->worker, command);
    }
    send_command(h, a->worker, command);
}

/* OPEN allocates the slots, whose number may have changed; the weights come with RESTORE. */
static void send_open(struct host *h, const strait_swarm_action *a) {
    const int window = h->windows[a->stage];
    strait_stage_command command = {.kind = STRAIT_COMMAND_OPEN,
                                    .open = {.n_slots = window > 0 ? window : 1, .may_reuse = 1}};
    send_command(h, a->worker, &command);
}

static void send_restore(struct host *h, const strait_swarm_action *a) {
    struct connection *connection = strait_host_connection(h, a->worker);
    strait_task task = {.kind = STRAIT_TASK_RESTORE,
                        .restore = {.step = a->step,
                                    .source = a->source,
                                    .gives_prev = a->gives_prev,
                                    .gives_next = a->gives_next,
                                    .digest = a->digest,
                                    .live_step = a->live_step,
                                    .gives_replicas = a->gives_replicas}};
    if (a->source == STRAIT_SWARM_FROM_HOST && connection != NULL)
        connection->offered_generation = h->coordinator.generation;
    send_task(h, a->worker, &task);
}

void strait_host_command(struct host *h, const strait_swarm_action *a) {
    switch (h->coordinator.phase) {
    case STRAIT_PHASE_ASSIGN:
        h->pace.assigned_ns = strait_clock_ns();
        send_assign(h, a);
        break;
    case STRAIT_PHASE_LISTEN:
    case STRAIT_PHASE_CONNECT: send_neighbours(h, a); break;
    case STRAIT_PHASE_OPEN: send_open(h, a); break;
    case STRAIT_PHASE_RESTORE: send_restore(h, a); break;
    case STRAIT_PHASE_SNAPSHOT: strait_host_send_task(h, a->worker, STRAIT_TASK_SNAPSHOT); break;
    case STRAIT_PHASE_WORK: send_work(h, a); break;
    default: break;
    }
}

/* ---- restoring from a checkpoint ---- */

/* A snapshot may exceed the limit of a send queue, so only some pieces are queued at a time. */
strait_err strait_host_continue_snapshot(struct host *h, struct connection *connection) {
    struct strait_snapshot_reader *outgoing = &connection->outgoing;
    while (!strait_snapshot_reader_is_done(outgoing) && connection->out.n_bytes < SNAPSHOT_AHEAD) {
        struct strait_msg *msg = NULL;
        strait_piece piece;
        if (connection->served_generation != h->coordinator.generation ||
            connection->link == NULL || connection->must_close)
            break;
        STRAIT_TRY(strait_snapshot_reader_next(outgoing, &piece));
        if (strait_snapshot_reader_is_done(outgoing))
            strait_coordinator_sent(&h->coordinator, outgoing->stage, outgoing->step,
                                    &outgoing->digest);
        STRAIT_TRY(strait_piece_pack(h->pool, &piece, &msg));
        msg->priority = STRAIT_PRIORITY_CONTROL;
        strait_host_send(h, connection, &msg);
    }
    if (strait_snapshot_reader_is_done(outgoing) ||
        connection->served_generation != h->coordinator.generation)
        strait_snapshot_reader_fini(outgoing);
    return STRAIT_OK;
}

/* Opens the checkpoint that the stages are restored from, unless it is still open from another
 * worker's request: opening reads and hashes all of it. */
static strait_err open_source(struct host *h) {
    for (int i = 0; i < h->links.n_items; i++)
        if (h->links.items[i].served_generation != h->coordinator.generation)
            strait_snapshot_reader_fini(&h->links.items[i].outgoing);
    if (h->checkpoint.source != NULL &&
        strait_checkpoint_step(h->checkpoint.source) == h->coordinator.step)
        return STRAIT_OK;
    strait_checkpoint_close(&h->checkpoint.source);
    char folder[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_file_path(folder, "%s/checkpoints/%08lld", h->spec->folder,
                                (long long)h->coordinator.step));
    if (!strait_file_exists(folder))
        return STRAIT_FAIL(STRAIT_EDATA, "%s: was removed, and workers have to restore from it",
                           folder);
    return strait_host_open_checkpoint(h, folder, &h->checkpoint.source);
}

void strait_host_close_source(struct host *h) {
    for (int i = 0; i < h->links.n_items; i++)
        if (h->links.items[i].outgoing.checkpoint != NULL) return;
    strait_checkpoint_close(&h->checkpoint.source);
}

/* A worker that requests other tensors than those of its stage is faulty or hostile. */
static strait_err check_request(const struct host *h, int stage, const strait_view *list) {
    struct strait_snapshot wanted = {0};
    strait_err err = strait_snapshot_expected_header(&h->executor->plan, stage, &wanted);
    if (err == STRAIT_OK)
        err = strait_snapshot_header_match(list->data, list->bytes, wanted.data, wanted.bytes);
    if (err == STRAIT_OK && list->bytes != wanted.bytes) err = strait_snapshot_header_fail();
    strait_snapshot_fini(&wanted);
    return err;
}

static void report_invalid_request(struct host *h, int worker, int stage) {
    strait_host_note(h, "%s, stage %d: requested tensors that its stage does not have: %s",
                     h->coordinator.workers[worker].report.name, stage, strait_err_detail());
    strait_host_feed_coordinator(
        h, &(strait_swarm_event){.kind = STRAIT_SWARM_INVALID_DATA, .worker = worker});
}

strait_err strait_host_begin_snapshot(struct host *h, struct connection *connection,
                                      const strait_snapshot_request *request) {
    struct strait_snapshot_reader *outgoing = &connection->outgoing;
    const int stage = strait_coordinator_stage_of(&h->coordinator, connection->worker);
    if (h->coordinator.phase != STRAIT_PHASE_RESTORE ||
        request->generation != h->coordinator.generation || stage < 0 ||
        connection->served_generation == h->coordinator.generation || h->executor == NULL)
        return STRAIT_OK; // late, or answered before
    strait_err err = STRAIT_OK;
    if (connection->offered_generation == h->coordinator.generation)
        err = check_request(h, stage, &request->list);
    else
        err = STRAIT_FAIL(STRAIT_EPROTO,
                          "requested tensors of the checkpoint without a task to restore from it");
    if (err == STRAIT_EDATA || err == STRAIT_EPROTO) {
        report_invalid_request(h, connection->worker, stage);
        return STRAIT_OK;
    }
    if (err == STRAIT_OK) err = open_source(h);
    if (err == STRAIT_OK)
        err = strait_snapshot_reader_init(
            outgoing, h->checkpoint.source, request->list.data, request->list.bytes,
            (size_t)h->coordinator.config.need_bytes[stage] + (1 << 20));
    if (err == STRAIT_EDATA || err == STRAIT_EIO) {
        strait_host_fail(h, err); // no worker has the step, so the run cannot continue
        return STRAIT_OK;
    }
    STRAIT_TRY(err);
    connection->served_generation = outgoing->generation = h->coordinator.generation;
    outgoing->stage = stage;
    outgoing->step = h->coordinator.step;
    return strait_host_continue_snapshot(h, connection);
}
