/* lend_stage.c - taking a stage, meeting its neighbours, and bringing it to a step. */
#include "base/alloc.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "net/core/reachability.h"
#include "swarm/worker/state.h"

#include <stdio.h>
#include <string.h>

enum {
    MEET_MS = 10000,
    RESTORE_MS = 600000,
    LOOK_MS = 20,
    LINGER_MS = 300,
    SILENCE_MS = 8000
};

static const double seal_bytes_per_s = 1e9; // TLS on one core, about

void strait_worker_drop_stage(struct lend *l) {
    strait_runner_close(&l->server.worker);
    strait_loader_close(&l->server.loader);
    strait_alloc_free(l->server.basis);
    strait_alloc_free(l->ids);
    l->server.basis = NULL;
    l->ids = NULL;
    l->text[0] = '\0';
}

/* The run as it came, but for what is ours to say: device, and no file of ours is named. */
static strait_err read_run(struct lend *l) {
    strait_run *run = &l->server.run;
    STRAIT_TRY(strait_run_init_text("the run", l->task.text, strlen(l->task.text), NULL, 0, run));
    run->data.train[0] = run->data.valid[0] = run->data.tokenizer[0] = '\0';
    run->stages.launch[0] = '\0';
    (void)snprintf(run->device.kind, sizeof run->device.kind, "%s", l->spec->device);
    run->device.ordinal = l->spec->ordinal;
    run->device.threads = l->spec->n_threads;
    run->link.transport = STRAIT_RUN_TLS;
    if (l->task.stage >= run->stages.count || l->task.valid_windows > STRAIT_VALID_MAX ||
        run->model.vocab < 1)
        return STRAIT_FAIL(STRAIT_EPROTO, "the coordinator describes no run that can be");
    return STRAIT_OK;
}

/* A machine that would have to swap says so before it does. */
static strait_err check_memory(const struct lend *l) {
    strait_runner_memory m;
    STRAIT_TRY(strait_runner_plan(&l->server.plan, l->task.stage, 1, &m));
    const double need = strait_snapshot_need(&m);
    if (l->report.memory_bytes <= 0.0 || need <= l->report.memory_bytes) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ENOMEM, "stage %d and its images need %.0f MB, and %.0f MB are free",
                       l->task.stage, need / 1e6, l->report.memory_bytes / 1e6);
}

/* A stage that is already made from the same words is kept. */
static strait_err make_stage(struct lend *l) {
    struct strait_service *s = &l->server;
    if (l->text[0] != '\0' && s->start.stage == l->task.stage && strcmp(l->text, l->task.text) == 0)
        return STRAIT_OK;
    const int is_other_cut = strcmp(l->text, l->task.text) != 0;
    strait_worker_drop_stage(l);
    for (int i = 0; i < STRAIT_SWARM_SNAPSHOTS; i++)
        l->own[i].bytes = l->own[i].filled = 0;
    for (int i = 0; i < 2 * STRAIT_WORKER_COPIES && is_other_cut; i++) {
        struct strait_snapshot
            *copy = &l->copies[i / STRAIT_WORKER_COPIES][i % STRAIT_WORKER_COPIES];
        copy->bytes = copy->filled = 0;
    }
    STRAIT_TRY(read_run(l));
    s->start.stage = l->task.stage;
    STRAIT_TRY(strait_loader_open_given(s->run.model.vocab, l->task.valid_windows, &s->loader));
    STRAIT_TRY(strait_service_prepare(s));
    const size_t n = (size_t)(s->plan.microbatch * s->plan.shape.context);
    STRAIT_TRY(strait_alloc(2 * n, sizeof *l->ids, "ids", (void **)&l->ids));
    STRAIT_TRY(check_memory(l));
    memcpy(l->text, l->task.text, sizeof l->text);
    return STRAIT_OK;
}

/* Of a neighbour's link. There is someone to turn to, so it need not be long. */
static int silence_ms(double deadline_s) {
    return deadline_s * 1e3 < SILENCE_MS ? (int)(deadline_s * 1e3) : SILENCE_MS;
}

/* A mesh of this epoch alone: its run id is the run's and the epoch's. */
static strait_err open_mesh(struct lend *l, char address[STRAIT_ADDRESS_MAX]) {
    struct strait_service *s = &l->server;
    strait_mesh_config config = {
        .scheme = "tls",
        .transport = {.identity = l->spec->identity,
                      .n_streams = (int)s->run.link.streams,
                      .linger_ms = LINGER_MS,
                      .peer_timeout_ms = silence_ms(s->run.link.deadline)}};
    memcpy(config.transport.run, l->spec->invite.run, STRAIT_RUN_BYTES);
    strait_put_u32(config.transport.run, strait_get_u32(config.transport.run) ^ l->generation);
    (void)snprintf(config.transport.name, sizeof config.transport.name, "stage %d", l->task.stage);
    STRAIT_TRY(strait_mesh_open(&config, &s->mesh));
    if (l->spec->cannot_listen) {
        address[0] = '\0';
        return STRAIT_OK;
    }
    char bound[STRAIT_ADDRESS_MAX];
    char host[STRAIT_ADDRESS_MAX]; // the coordinator's, as it is reached from here
    STRAIT_TRY(strait_mesh_listen(s->mesh, l->spec->listen, bound));
    STRAIT_TRY(strait_mesh_last_address(l->control, 0, host));
    strait_reachability_address(bound, l->spec->announce, host, address);
    return STRAIT_OK;
}

strait_err strait_worker_take(struct lend *l, char address[STRAIT_ADDRESS_MAX]) {
    struct strait_service *s = &l->server;
    s->prev = s->next = -1;
    s->seen_forward = s->seen_backward = 0;
    s->shares_links = 1;
    l->is_broken = 0;
    l->n_refused[0] = l->n_refused[1] = 0;
    l->sending = NULL;
    l->incoming.bytes = l->incoming.filled = 0;
    STRAIT_TRY(make_stage(l));
    return open_mesh(l, address);
}

static strait_err add_peer(struct lend *l, const strait_task_peer *peer, int side, int *out) {
    const strait_emulate_spec emulate = l->server.plan.emulate;
    const int dials = peer->address[0] != '\0' && !peer->must_listen;
    strait_mesh_peer to = {
        .key = peer->key, .address = dials ? peer->address : NULL, .emulate = &emulate};
    char bound[STRAIT_ADDRESS_MAX];
    if (!peer->is_there || dials != (l->task.kind == STRAIT_TASK_DIAL)) return STRAIT_OK;
    (void)snprintf(to.name, sizeof to.name, "stage %d", l->task.stage + side);
    STRAIT_TRY(strait_mesh_add(l->server.mesh, &to, out));
    return peer->must_listen ? strait_mesh_listen(l->server.mesh, peer->address, bound) : STRAIT_OK;
}

static strait_err wait_up(struct lend *l, int peer) {
    const int64_t until = strait_clock_ns() + MEET_MS * INT64_C(1000000);
    while (peer >= 0) {
        const strait_err err = strait_mesh_wait_up(l->server.mesh, peer, LOOK_MS);
        if (err != STRAIT_ETIMEDOUT || strait_clock_ns() > until) return err;
        STRAIT_TRY(strait_worker_poll(l));
    }
    return STRAIT_OK;
}

strait_err strait_worker_meet(struct lend *l, int *missing) {
    struct strait_service *s = &l->server;
    STRAIT_TRY(add_peer(l, &l->task.prev, -1, &s->prev));
    STRAIT_TRY(add_peer(l, &l->task.next, 1, &s->next));
    if (l->task.kind == STRAIT_TASK_MEET) return STRAIT_OK; // nobody dials yet
    *missing = s->start.stage - 1;
    STRAIT_TRY(wait_up(l, s->prev));
    *missing = s->start.stage;
    STRAIT_TRY(wait_up(l, s->next));
    if (s->worker != NULL) strait_runner_connect(s->worker, s->mesh, s->prev, s->next);
    return STRAIT_OK;
}

/* ---- restoring ---- */

/* As it was drawn, unless it still is. */
static strait_err reopen(struct lend *l) {
    static _Thread_local strait_stage_command command;
    strait_reply reply = {0};
    if (l->server.worker->is_untouched) return STRAIT_OK;
    command = (strait_stage_command){.kind = STRAIT_COMMAND_OPEN,
                                     .number = l->server.worker->n_slots};
    return strait_service_execute(&l->server, &command, &reply);
}

static strait_err give(struct lend *l, int peer, int stage) {
    const struct strait_snapshot *copy = NULL;
    for (int side = 0; side < 2 && copy == NULL; side++)
        copy = strait_worker_find(l->copies[side], STRAIT_WORKER_COPIES, stage, l->task.step);
    if (copy == NULL || peer < 0)
        return STRAIT_FAIL(STRAIT_EPROTO, "no copy of stage %d at step %lld is here", stage,
                           (long long)l->task.step);
    l->is_giving = 1;
    const strait_err err = strait_worker_send_all(l, l->server.mesh, peer, copy,
                                                  STRAIT_PRIORITY_GRADIENT);
    l->is_giving = 0;
    return err;
}

static strait_err ask_host(struct lend *l) {
    struct strait_snapshot list = {0};
    struct strait_msg *msg = NULL;
    size_t whole = 0;
    strait_err err = strait_snapshot_header(l->server.worker, &list, &whole);
    if (err == STRAIT_OK)
        err = strait_msg_open(strait_mesh_pool(l->control), STRAIT_MSG_WANT, list.bytes, &msg);
    if (err == STRAIT_OK) {
        memcpy(msg->body, list.data, list.bytes);
        msg->step = l->generation;
        err = strait_mesh_send(l->control, 0, &msg);
    }
    strait_msg_close(&msg);
    strait_snapshot_fini(&list);
    return err;
}

/* Waits for the image that is being sent to us, restores it and keeps it as our own. */
static strait_err receive(struct lend *l) {
    const struct timespec nap = {.tv_nsec = LOOK_MS * 1000000L / 4};
    int64_t came_ns = strait_clock_ns(); // the latest of it
    size_t filled = 0;
    while (!strait_snapshot_is_whole(&l->incoming)) {
        if (l->incoming.filled != filled) came_ns = strait_clock_ns();
        filled = l->incoming.filled;
        if (strait_clock_ns() - came_ns > RESTORE_MS * INT64_C(1000000))
            return STRAIT_FAIL(STRAIT_ETIMEDOUT, "the image of step %lld did not come",
                               (long long)l->task.step);
        STRAIT_TRY(strait_worker_poll(l));
        if (!strait_snapshot_is_whole(&l->incoming)) (void)nanosleep(&nap, NULL);
    }
    if (l->task.source != STRAIT_SWARM_FROM_HOST) STRAIT_TRY(strait_snapshot_check(&l->incoming));
    STRAIT_TRY(strait_snapshot_put(&l->incoming, l->server.worker));
    struct strait_snapshot *place = strait_worker_find(l->own, STRAIT_SWARM_SNAPSHOTS,
                                                       l->server.start.stage, l->task.step);
    if (place == NULL) place = strait_worker_place(l); // else ours was not trusted
    const struct strait_snapshot keep = *place;
    *place = l->incoming;
    place->stage = l->server.start.stage;
    place->step = l->task.step;
    place->generation = l->generation;
    l->incoming = keep;
    l->incoming.bytes = l->incoming.filled = 0;
    return STRAIT_OK;
}

/* What is no number is not restored: the coordinator has an older one, or another's. */
static strait_err restore_own(struct lend *l) {
    struct strait_snapshot *own = strait_worker_find(l->own, STRAIT_SWARM_SNAPSHOTS,
                                                     l->server.start.stage, l->task.step);
    if (own == NULL)
        return STRAIT_FAIL(STRAIT_EPROTO, "no image of step %lld is here", (long long)l->task.step);
    const strait_err err = strait_snapshot_check(own);
    if (err != STRAIT_OK) own->bytes = own->filled = 0;
    return err == STRAIT_OK ? strait_snapshot_put(own, l->server.worker) : err;
}

static strait_err restore_from(struct lend *l) {
    switch (l->task.source) {
    case STRAIT_SWARM_FROM_SEED: return reopen(l);
    case STRAIT_SWARM_FROM_SELF: return restore_own(l);
    case STRAIT_SWARM_FROM_HOST: STRAIT_TRY(ask_host(l)); return receive(l);
    case STRAIT_SWARM_FROM_PREV:
    case STRAIT_SWARM_FROM_NEXT: break;
    }
    return receive(l);
}

strait_err strait_worker_restore(struct lend *l, strait_reply *reply) {
    struct strait_service *s = &l->server;
    if (s->worker == NULL) return STRAIT_FAIL(STRAIT_EPROTO, "there is no stage to restore");
    if (l->task.gives_prev) STRAIT_TRY(give(l, s->prev, s->start.stage - 1));
    if (l->task.gives_next) STRAIT_TRY(give(l, s->next, s->start.stage + 1));
    const strait_err err = restore_from(l);
    const int is_no_use = err == STRAIT_ENONFINITE || err == STRAIT_EDATA; // what was given
    if (is_no_use && l->task.source == STRAIT_SWARM_FROM_NEXT)
        reply->refused[STRAIT_SENDER] = 1; // the giver is to blame
    if (is_no_use && l->task.source == STRAIT_SWARM_FROM_PREV) reply->refused[STRAIT_RECEIVER] = 1;
    STRAIT_TRY(err);
    strait_worker_trim(l, l->task.step);
    if (s->worker->receiver != NULL) strait_boundary_reset(s->worker->receiver, l->task.step);
    if (s->worker->sender != NULL) strait_boundary_reset(s->worker->sender, l->task.step);
    l->step = l->task.step;
    return STRAIT_OK;
}

strait_err strait_worker_current_snapshot(struct lend *l, struct strait_snapshot **out) {
    struct strait_snapshot *place = strait_worker_find(l->own, STRAIT_SWARM_SNAPSHOTS,
                                                       l->server.start.stage, l->step);
    if (place == NULL) {
        place = strait_worker_place(l);
        STRAIT_TRY(strait_snapshot_take(l->server.worker, l->step, l->generation, place));
    }
    *out = place;
    return STRAIT_OK;
}

strait_err strait_worker_keep(struct lend *l, int is_urgent) {
    const double began = strait_clock_seconds();
    struct strait_snapshot *place = NULL;
    STRAIT_TRY(strait_worker_current_snapshot(l, &place));
    l->snapshot_s = strait_clock_seconds() - began + (double)place->bytes / seal_bytes_per_s;
    l->snapshot_bytes = place->bytes;
    l->is_urgent = is_urgent;
    if (l->sending != NULL && !is_urgent) return STRAIT_OK; // the older copy arrives first
    l->sending = place;
    l->sent = 0;
    return STRAIT_OK;
}
