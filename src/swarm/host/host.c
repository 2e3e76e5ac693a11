#include "swarm/host/host.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "net/core/local_socket.h"
#include "net/core/reachability.h"
#include "swarm/budget.h"
#include "swarm/host/access/operator.h"
#include "swarm/host/checkpoint/first.h"
#include "swarm/host/codec/codec.h"
#include "swarm/host/replicas.h"
#include "swarm/host/state.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    TICK_MS = 200,
    STATUS_MS = 1000,
    BLOCKED_MS = 2000, // between two polls, after which silence of workers is not held against them
    MESSAGE_MAX = 1 << 20, // from a worker, without the basis that some replies carry
    DEAD_MS = 5000,        // silence after which the link of a worker is closed
    END_MS = 1500,         // for workers to receive the end of the run
    LINGER_MS = 500
};

static const double setup_timeout_s = 600.0; // for a stage of unknown size to be built or restored
static const double lease_max_s = 30.0;      // however long the pauses of a worker are
static const double owner_wait_s = 5.0;      // for previous owners to reconnect after a restart

void strait_host_note(struct host *h, const char *format, ...) {
    char text[512];
    va_list args;
    if (h->spec->events.noted == NULL) return;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    h->spec->events.noted(h->spec->events.user, text);
}

/* ---- the coordinator's actions ---- */

void strait_host_fail(struct host *h, strait_err err) {
    if (h->failure.err != STRAIT_OK) return;
    h->failure.err = err;
    (void)snprintf(h->failure.reason, sizeof h->failure.reason, "%s", strait_err_detail());
}

/* Whether a line says no more than that a worker has come or gone, which it may do as often as it
 * likes. What costs others something, such as an owner that is lost, or a pipeline that is left
 * out, is logged in any case. */
static int is_coming_or_going(const struct host *h, const strait_swarm_event *e,
                              const strait_swarm_action *a) {
    if (a->worker < 0 || a->successor >= 0) return 0;
    switch (e->kind) {
    case STRAIT_SWARM_JOIN:
        return strait_fingerprint_equal(&e->key, &h->coordinator.workers[a->worker].key) &&
               a->stage < 0;
    case STRAIT_SWARM_LOST:
    case STRAIT_SWARM_LEAVE: return e->worker == a->worker && a->stage < 0;
    case STRAIT_SWARM_TICK: // a spare whose lease has expired: the action before ends its link
        return a->stage < 0 && a > h->actions.items && a[-1].kind == STRAIT_SWARM_DISCONNECT &&
               a[-1].worker == a->worker;
    default: return 0;
    }
}

static void note_action(struct host *h, const strait_swarm_event *e, const strait_swarm_action *a) {
    const strait_swarm_worker *worker = a->worker >= 0 ? &h->coordinator.workers[a->worker] : NULL;
    char line[STRAIT_SWARM_LINE];
    if (is_coming_or_going(h, e, a) && !strait_host_may_log(h, &worker->key, worker->report.name))
        return;
    strait_coordinator_describe(&h->coordinator, a, line);
    strait_host_note(h, "%s", line);
}

/* If the state cannot be written, the run ends before anything relies on it. */
static void persist(struct host *h, strait_err err) {
    if (err != STRAIT_OK) strait_host_fail(h, err);
}

static void ban(struct host *h, const strait_swarm_action *a, struct connection *connection) {
    const strait_err err = strait_host_ban(h, &h->coordinator.workers[a->worker].key);
    if (err != STRAIT_OK) strait_host_fail(h, err);
    h->links.of_worker[a->worker] = -1;
    if (connection == NULL) return;
    connection->worker = -1;
    strait_host_refuse(h, connection, a->reason);
}

static void execute(struct host *h, const strait_swarm_event *e, const strait_swarm_action *a) {
    struct connection *connection = strait_host_connection(h, a->worker);
    if (h->failure.err != STRAIT_OK) return;
    switch (a->kind) {
    case STRAIT_SWARM_PERSIST: persist(h, strait_host_save_state(h)); break;
    case STRAIT_SWARM_RECORD: persist(h, strait_host_save_record(h, a->worker)); break;
    case STRAIT_SWARM_COMMAND: strait_host_command(h, a); break;
    case STRAIT_SWARM_STAY: strait_host_say_why(h, a->worker, a->reason); break;
    case STRAIT_SWARM_RELEASE: strait_host_send_task(h, a->worker, STRAIT_TASK_RELEASE); break;
    case STRAIT_SWARM_DISCONNECT:
        h->links.of_worker[a->worker] = -1;
        if (connection == NULL) break;
        connection->worker = -1;
        strait_host_disconnect(h, connection, a->reason[0] == '\0' ? STRAIT_OK : STRAIT_ECLOSED,
                               a->reason);
        break;
    case STRAIT_SWARM_BAN: ban(h, a, connection); break;
    case STRAIT_SWARM_DONE: h->work.is_done = 1; break;
    case STRAIT_SWARM_RESTORED:
        h->work.step = h->replay.start = a->step;
        h->work.has_rolled_back = h->work.must_finish = 1;
        h->pace.restored_ns = strait_clock_ns();
        strait_host_adopt_replicas(h);
        strait_host_keep_owners(h);
        strait_host_routes_work(h);
        strait_host_audit_restored(h, a->step);
        strait_host_note_restored(h);
        break;
    case STRAIT_SWARM_LOG: note_action(h, e, a); break;
    }
}

void strait_host_feed_coordinator(struct host *h, const strait_swarm_event *event) {
    strait_swarm_actions *actions = &h->actions;
    if (h->is_ending) return;
    strait_coordinator_step(&h->coordinator, event, strait_clock_ns(), actions);
    /* Executing an action may close a link whose queue is full, but never feeds the coordinator
     * again, which would overwrite the list. */
    for (int i = 0; i < actions->n; i++)
        execute(h, event, &actions->items[i]);
}

/* ---- the event loop ---- */

strait_host_status strait_host_status_now(struct host *h) {
    for (int i = 0; i < STRAIT_SWARM_WORKERS; i++) {
        const struct connection *connection = strait_host_connection(h, i);
        memset(&h->links.stats[i], 0, sizeof h->links.stats[i]);
        if (connection != NULL) h->t->ops->stats(connection->link, &h->links.stats[i]);
    }
    const strait_audits *audits = h->audits != NULL ? &h->audits->state : NULL;
    return (strait_host_status){.has_audits = audits != NULL,
                                .more = h->pace.more,
                                .n_approved = audits != NULL ? audits->n_approved : 0,
                                .n_convicted = audits != NULL ? audits->n_convicted : 0,
                                .n_dropped = audits != NULL ? audits->n_dropped : 0,
                                .coordinator = &h->coordinator,
                                .links = h->links.stats,
                                .n_refused = h->links.n_refused,
                                .ids_bytes = h->ids_bytes,
                                .is_paused = h->persistence.is_paused};
}

void strait_host_report_status(struct host *h) {
    if (h->spec->events.changed == NULL || !h->is_open) return;
    if (strait_host_check_folder(h) != STRAIT_OK) return;
    h->clock.status_ns = strait_clock_ns();
    const strait_host_status status = strait_host_status_now(h);
    h->spec->events.changed(h->spec->events.user, &status);
}

void strait_host_report_status_if_due(struct host *h, int64_t now_ns) {
    if (now_ns - h->clock.status_ns > STATUS_MS * INT64_C(1000000)) strait_host_report_status(h);
}

strait_err strait_host_pump(struct host *h, int timeout_ms) {
    const int64_t began = h->clock.pumped_ns != 0 ? h->clock.pumped_ns : strait_clock_ns();
    (void)h->t->ops->progress(h->t, timeout_ms < TICK_MS ? timeout_ms : TICK_MS);
    const int64_t now = h->clock.pumped_ns = strait_clock_ns();
    if (now - began > BLOCKED_MS * INT64_C(1000000)) { // the host itself was blocked or stopped
        if (strait_host_check_folder(h) != STRAIT_OK)
            return STRAIT_FAIL(h->failure.err, "%s", h->failure.reason);
        strait_host_feed_coordinator(h, &(strait_swarm_event){.kind = STRAIT_SWARM_RESUMED});
    }
    strait_host_dispatch(h);
    strait_host_audit_tick(h, now);
    if (now - h->clock.tick_ns > TICK_MS * INT64_C(1000000)) {
        h->clock.tick_ns = now;
        strait_host_check_newcomers(h, now);
        strait_host_trim_memory(h, now);
        strait_host_sum_up(h, now);
        strait_host_serve_operator(h);
        strait_host_feed_coordinator(h, &(strait_swarm_event){.kind = STRAIT_SWARM_TICK});
        const strait_err err = strait_host_renew(h, now);
        if (err != STRAIT_OK) strait_host_fail(h, err);
    }
    strait_host_report_status_if_due(h, now);
    strait_host_send_run_status_if_due(h, now);
    if (h->failure.err == STRAIT_OK) return STRAIT_OK;
    return STRAIT_FAIL(h->failure.err, "%s", h->failure.reason);
}

/* ---- beginning ---- */

/* Writes the addresses of the invite: each announced one, completed with the port we listen at. */
static void list_addresses(struct host *h, const char *bound) {
    const char *next = h->spec->announce != NULL ? h->spec->announce : "";
    size_t used = 0;
    do {
        char wanted[STRAIT_ADDRESS_MAX];
        char address[STRAIT_ADDRESS_MAX];
        const size_t n = strcspn(next, ",");
        (void)snprintf(wanted, sizeof wanted, "%.*s", (int)n, next);
        strait_reachability_address(bound, wanted, "", address);
        const int put = snprintf(h->invite.address + used, sizeof h->invite.address - used, "%s%s",
                                 used > 0 ? "," : "", address);
        used += put > 0 ? (size_t)put : 0;
        next += n + (next[n] == ',');
    } while (*next != '\0' && used < sizeof h->invite.address);
}

static strait_err open_transport(struct host *h, const strait_run_plan *plan) {
    const size_t basis = sizeof(float) * (size_t)(plan->codec.cols * plan->codec.keep);
    const size_t crossing = h->spec->audit_share > 0.0 ? strait_budget_message(plan) : 0;
    char address[STRAIT_ADDRESS_MAX];
    char line[STRAIT_INVITE_TEXT];
    strait_transport_config config = {.identity = h->spec->identity,
                                      .name = "coordinator",
                                      .n_streams = 1,
                                      .max_streams = 1,
                                      .peer_timeout_ms = DEAD_MS,
                                      .message_max = MESSAGE_MAX + basis + crossing,
                                      .linger_ms = LINGER_MS};
    (void)strait_file_raise_limit(); // more workers may join than the usual limit has sockets
    STRAIT_TRY(strait_msg_pool_open(&h->pool));
    config.pool = h->pool;
    memcpy(config.run, h->invite.run, STRAIT_RUN_BYTES);
    STRAIT_TRY(strait_transport_open("tls", &strait_host_connections, h, &config, &h->t));
    /* Workers hold the invite of the first start, so a restart must use the port that it names. */
    const char *port = strrchr(h->spec->listen, ':');
    const char *old_port = strrchr(h->invite.address, ':');
    char listen[STRAIT_ADDRESS_MAX];
    if (port != NULL && strcmp(port, ":0") == 0 && h->persistence.was_begun && old_port != NULL)
        (void)snprintf(listen, sizeof listen, "%.*s%s", (int)(port - h->spec->listen),
                       h->spec->listen, old_port);
    else
        (void)snprintf(listen, sizeof listen, "%s", h->spec->listen);
    const strait_err listening = strait_transport_listen(h->t, listen, address);
    if (listening == STRAIT_EINUSE && h->persistence.was_begun)
        strait_err_prefix("if another coordinator of this run hangs on this machine, give this one "
                          "a port of its own (--listen) and announce both (--announce)");
    STRAIT_TRY(listening);
    STRAIT_TRY(strait_host_take_folder(h));      // not before the port, which it needs too
    STRAIT_TRY(strait_host_make_first(h, plan)); // before workers join a run that cannot start
    list_addresses(h, address);
    h->invite.key = *strait_identity_fingerprint(h->spec->identity);
    STRAIT_TRY(strait_host_save_run(h)); // with the expiry of the invite
    STRAIT_TRY(strait_host_open_audits(h));
    STRAIT_TRY(strait_invite_format(&h->invite, line));
    h->is_open = 1;
    strait_host_open_operator(h);
    if (h->spec->events.invited != NULL) h->spec->events.invited(h->spec->events.user, line);
    return STRAIT_OK;
}

/* A run with its last checkpoint is over and needs no workers. If that checkpoint was damaged, a
 * note names the file and the run continues from the newest whole one. */
static strait_err check_finished(struct host *h, int *is_finished) {
    struct strait_checkpoint *checkpoint = NULL;
    int64_t *steps = NULL;
    int n = 0;
    STRAIT_TRY(strait_checkpoint_list(h->spec->folder, &steps, &n));
    const int may_be = h->spec->resumes + h->persistence.was_begun > 0 && n > 0 &&
                       steps[n - 1] >= h->run.train.steps;
    strait_alloc_free(steps);
    if (!may_be) return STRAIT_OK;
    STRAIT_TRY(strait_host_open_checkpoint(h, h->spec->folder, &checkpoint));
    const char *skipped = strait_checkpoint_skipped(checkpoint);
    if (skipped != NULL) strait_host_note(h, "%s", skipped);
    *is_finished = strait_checkpoint_step(checkpoint) >= h->run.train.steps;
    strait_checkpoint_close(&checkpoint);
    return STRAIT_OK;
}

static strait_err prepare(struct host *h, int *is_finished) {
    struct strait_loader *loader = NULL;
    strait_run_plan plan;
    STRAIT_TRY(strait_loader_open(&h->run, &loader));
    strait_err err = strait_run_plan_init(&h->run, strait_loader_vocab(loader), &plan);
    if (err == STRAIT_OK) err = strait_run_plan_check_swarm(&plan);
    if (err == STRAIT_OK) err = strait_host_check_replicas(h, &plan);
    if (err == STRAIT_OK) strait_host_plan_replicas(h, &plan);
    if (err == STRAIT_OK) err = strait_loader_configure(loader, &plan);
    if (err == STRAIT_OK) err = strait_host_check_validation(loader, &plan);
    if (err == STRAIT_OK)
        err = strait_host_describe_run(h, &plan, strait_loader_valid_windows(loader));
    strait_loader_close(&loader);
    if (err == STRAIT_OK) err = strait_host_open_metastore(h);
    /* A run of "strait train" is continued only on request. Checked before any worker joins. */
    if (err == STRAIT_OK)
        err = strait_session_check_folder(h->spec->folder,
                                          h->spec->resumes || h->persistence.was_begun);
    if (err == STRAIT_OK) err = check_finished(h, is_finished);
    if (err != STRAIT_OK || *is_finished) return err;
    err = strait_host_check_resources(h);
    if (err == STRAIT_OK) err = open_transport(h, &plan);
    /* A stored split is kept, since snapshots and checkpoints depend on it. */
    if (err == STRAIT_OK && !(h->persistence.was_begun && h->run.stages.split.n > 0))
        err = strait_host_choose_split(h, &plan);
    if (err == STRAIT_OK) err = strait_host_choose_codec(h, &plan);
    return err == STRAIT_OK ? strait_host_fit_first(h, &plan) : err;
}

/* ---- ending ---- */

/* Tells all workers that the run has ended, and waits until they have closed their links: closing
 * ours first could lose the message. */
static void end_workers(struct host *h) {
    const int64_t until = strait_clock_ns() + END_MS * INT64_C(1000000);
    h->is_ending = 1;
    for (int i = 0; i < STRAIT_SWARM_WORKERS; i++)
        if (strait_host_connection(h, i) != NULL) strait_host_send_task(h, i, STRAIT_TASK_END);
    for (int n_left = 1; n_left > 0 && strait_clock_ns() < until;) {
        (void)h->t->ops->progress(h->t, 50);
        n_left = 0;
        for (int i = 0; i < STRAIT_HOST_CONNECTIONS; i++)
            n_left += h->links.items[i].link != NULL;
    }
}

static void close_host(struct host *h) {
    h->is_ending = 1;
    strait_local_close(&h->operator_socket);
    strait_transport_close(&h->t);
    for (int i = 0; i < STRAIT_HOST_CONNECTIONS; i++)
        strait_host_connection_fini(&h->links.items[i]);
    strait_checkpoint_close(&h->checkpoint.source);
    strait_host_history_fini(h);
    strait_host_close_audits(h);
    strait_msg_pool_close(&h->pool);
    strait_host_leave_folder(h);
    if (h->persistence.metastore != NULL)
        strait_metastore_discard(h->persistence.metastore); // if the run never began
    strait_metastore_close(&h->persistence.metastore);
    strait_alloc_free(h);
}

strait_err strait_host(const strait_host_spec *spec) {
    struct host *h = NULL;
    const strait_swarm_config config = {.n_stages = (int)spec->run->stages.count,
                                        .lease_ns = (int64_t)(spec->lease_s * 1e9),
                                        .stall_timeout_ns = (int64_t)(spec->stall_s * 1e9),
                                        .lease_max_ns = (int64_t)(lease_max_s * 1e9),
                                        .has_relay = spec->relay != NULL,
                                        .setup_timeout_ns = (int64_t)(setup_timeout_s * 1e9),
                                        .owner_wait_ns = (int64_t)(owner_wait_s * 1e9)};
    STRAIT_TRY(strait_alloc(1, sizeof *h, "host", (void **)&h));
    h->spec = spec;
    h->run = *spec->run;
    h->pace.snapshot_every = 1;
    h->checkpoint.saving = -1;
    for (int i = 0; i < STRAIT_HOST_SUSPICIONS; i++)
        h->claims.suspicions[i].step = -1;
    h->invite.uses = spec->uses;
    for (int i = 0; i < STRAIT_SWARM_WORKERS; i++)
        h->links.of_worker[i] = -1;
    strait_coordinator_init(&h->coordinator, &config);
    int is_finished = 0;
    strait_err err = prepare(h, &is_finished);
    if (err == STRAIT_OK && !is_finished) err = strait_host_run_session(h);
    if (h->is_open) strait_host_report_status(h); // the final status
    if (err == STRAIT_OK && h->t != NULL) end_workers(h);
    char reason[512]; // copied, because closing may overwrite the error detail
    (void)snprintf(reason, sizeof reason, "%s", strait_err_detail());
    close_host(h);
    return err == STRAIT_OK ? STRAIT_OK : STRAIT_FAIL(err, "%s", reason);
}
