/* neighbours.c - connects a stage to its neighbours.
 *
 * The addresses come from the coordinator and, through it, from other workers. So that none of them
 * can use this machine to probe the network it is in, only some kinds of addresses are dialled
 * (net/core/address_class.h), and the coordinator learns no more than whether a neighbour with the
 * right key answered within a fixed time. */
#include "base/bytes.h"
#include "base/clock.h"
#include "net/core/address_class.h"
#include "net/core/reachability.h"
#include "net/relay/relay_wire.h"
#include "swarm/budget.h"
#include "swarm/worker/state.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    POLL_MS = 20,
    LINGER_MS = 300,
    SILENCE_MS = 8000 // of a neighbour, at most, before its link counts as lost
};

/* Silence after which a neighbour's link counts as lost. It may be short, because the coordinator
 * then chooses another route or worker. */
static int neighbour_timeout_ms(double deadline_s) {
    return deadline_s * 1e3 < SILENCE_MS ? (int)(deadline_s * 1e3) : SILENCE_MS;
}

/* The kinds of addresses that this worker dials for others: public ones, and those of the network
 * in which it reached the coordinator itself. */
static unsigned dial_classes(struct worker *w) {
    char remote[STRAIT_ADDRESS_MAX];
    if (strait_mesh_remote(w->control.mesh, 0, remote) != STRAIT_OK) return STRAIT_ADDRESS_PUBLIC;
    const strait_address_class found = strait_address_class_of(remote);
    return STRAIT_ADDRESS_PUBLIC | (found == STRAIT_ADDRESS_NONE ? 0u : (unsigned)found);
}

/* Opens a mesh for this generation only. Its run id combines those of run and generation, so that
 * workers that are still in another generation cannot connect. */
strait_err strait_worker_open_mesh(struct worker *w, char address[STRAIT_ADDRESS_MAX]) {
    const strait_run *run = strait_service_get_run(w->service);
    const strait_run_plan *plan = strait_service_plan(w->service);
    w->dial_classes = dial_classes(w);
    strait_mesh_config config = {
        .scheme = "tls",
        .transport = {.identity = w->spec->identity,
                      .n_streams = (int)run->link.streams,
                      .linger_ms = LINGER_MS,
                      .peer_timeout_ms = neighbour_timeout_ms(run->link.deadline),
                      .message_max = strait_budget_message(plan),
                      .dial_classes = w->dial_classes,
                      .up = w->up,
                      .down = w->down},
        .queue_bytes = strait_budget_queue(plan),
        .inbox_bytes = strait_budget_queue(plan)};
    memcpy(config.transport.run, w->spec->invite.run, STRAIT_RUN_BYTES);
    strait_put_u32(config.transport.run, strait_get_u32(config.transport.run) ^ w->generation);
    (void)snprintf(config.transport.name, sizeof config.transport.name, "stage %d", w->stage);
    STRAIT_TRY(strait_mesh_open(&config, &w->mesh));
    if (w->spec->cannot_listen) {
        address[0] = '\0';
        return STRAIT_OK;
    }
    char bound[STRAIT_ADDRESS_MAX];
    char host[STRAIT_ADDRESS_MAX]; // the coordinator's, as it is reached from here
    STRAIT_TRY(strait_mesh_listen(w->mesh, w->spec->listen, bound));
    STRAIT_TRY(strait_mesh_last_address(w->control.mesh, 0, host));
    strait_reachability_address(bound, w->spec->announce, host, address);
    return STRAIT_OK;
}

int strait_worker_side_of(const struct worker *w, int peer) {
    strait_stage_side side;
    int replica = 0;
    if (!strait_stage_links_find(strait_service_links(w->service), peer, &side, &replica)) return 1;
    return side == STRAIT_SIDE_SAME ? STRAIT_WORKER_BROKEN_SAME
                                    : (side == STRAIT_SIDE_PREV ? -1 : 1);
}

/* `side` is -1 for the previous stage, 1 for the next, 0 for our own. */
static strait_err add_peer(struct worker *w, const strait_task_peer *peer, int dials_now, int side,
                           int *out) {
    const strait_emulate_spec emulate = strait_service_plan(w->service)->emulate;
    const int dials = peer->address[0] != '\0' && !peer->must_listen;
    const unsigned near = peer->is_near ? STRAIT_ADDRESS_PRIVATE : 0u;
    strait_mesh_peer to = {.key = peer->key,
                           .address = dials ? peer->address : NULL,
                           .emulate = &emulate,
                           .dial_classes = w->dial_classes | near};
    char bound[STRAIT_ADDRESS_MAX];
    if (!peer->is_present || dials != dials_now) return STRAIT_OK;
    /* Only our owner decides at which port we listen. */
    if (peer->must_listen && !strait_relay_is_address(peer->address))
        return STRAIT_FAIL(STRAIT_EPROTO, "the coordinator asked to listen at an address of its "
                                          "choice, which is not a relay");
    (void)snprintf(to.name, sizeof to.name, "stage %d", w->stage + side);
    STRAIT_TRY(strait_mesh_add(w->mesh, &to, out));
    return peer->must_listen ? strait_mesh_listen(w->mesh, peer->address, bound) : STRAIT_OK;
}

/* Every failure is reported as the same timeout, after the same time: whoever chose the address
 * does not learn whether something else answered there. */
static strait_err wait_up(struct worker *w, int peer, int64_t until_ns) {
    const struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
    while (peer >= 0) {
        const strait_err err = strait_mesh_wait_up(w->mesh, peer, POLL_MS);
        if (err == STRAIT_OK) return STRAIT_OK;
        if (strait_clock_ns() > until_ns) return STRAIT_ETIMEDOUT; // with the detail of `err`
        STRAIT_TRY(strait_worker_poll(w));
        if (err != STRAIT_ETIMEDOUT) (void)nanosleep(&pause, NULL); // a refusal returns at once
    }
    return STRAIT_OK;
}

/* Adds the replicas that are to be added now. */
static strait_err add_replicas(struct worker *w, const strait_task_replica *replicas, int n,
                               int dials_now) {
    for (int i = 0; i < n; i++) {
        const strait_task_replica *r = &replicas[i];
        int peer = -1;
        if (r->replica >= w->replicas.n[r->side] ||
            (r->side == STRAIT_SIDE_SAME && r->replica == w->replicas.replica))
            return STRAIT_FAIL(STRAIT_EPROTO, "the coordinator described a replica that the stage "
                                              "does not have");
        STRAIT_TRY(add_peer(w, &r->peer, dials_now, r->side - STRAIT_SIDE_SAME, &peer));
        strait_service_add_link(w->service, (strait_stage_side)r->side, r->replica, peer);
        if (peer >= 0 && r->side == STRAIT_SIDE_SAME && r->replica == 0) w->own_first = peer;
    }
    return STRAIT_OK;
}

/* Waits for all replicas but the first ones of the neighbours. */
static strait_err wait_replicas(struct worker *w, int64_t until_ns) {
    const strait_stage_links *links = strait_service_links(w->service);
    for (int side = 0; side < STRAIT_SIDES; side++)
        for (int i = 0; i < links->n[side]; i++) {
            w->failed_side = side - STRAIT_SIDE_SAME;
            STRAIT_TRY(wait_up(w, links->peers[side][i], until_ns));
        }
    return STRAIT_OK;
}

strait_err strait_worker_connect(struct worker *w, const strait_task *task) {
    strait_task_replica others[STRAIT_TASK_REPLICAS];
    int n_others = 0;
    const int dials = task->kind == STRAIT_TASK_CONNECT;
    const int64_t until = strait_clock_ns() + task->neighbours.timeout_ms * INT64_C(1000000);
    if (w->service == NULL)
        return STRAIT_FAIL(STRAIT_EPROTO, "task to connect before a stage was assigned");
    STRAIT_TRY(strait_task_replicas_unpack(&task->neighbours.others, others, &n_others));
    STRAIT_TRY(add_peer(w, &task->neighbours.prev, dials, -1, &w->prev));
    STRAIT_TRY(add_peer(w, &task->neighbours.next, dials, 1, &w->next_peer));
    /* Before waiting: a neighbour that is ready describes its codec while we wait for the other. */
    strait_service_add_link(w->service, STRAIT_SIDE_PREV, 0, w->prev);
    strait_service_add_link(w->service, STRAIT_SIDE_NEXT, 0, w->next_peer);
    STRAIT_TRY(add_replicas(w, others, n_others, dials));
    if (!dials) return STRAIT_OK; // the others dial once all listen
    w->failed_side = -1;
    STRAIT_TRY(wait_up(w, w->prev, until));
    w->failed_side = 1;
    STRAIT_TRY(wait_up(w, w->next_peer, until));
    STRAIT_TRY(wait_replicas(w, until));
    w->failed_side = 0;
    return strait_service_greet(w->service);
}
