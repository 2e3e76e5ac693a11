/* mesh_thread.c - the net thread of a mesh, the only thread that calls the transport. */
#include "base/clock.h"
#include "net/mesh/mesh_state.h"

#include <stdio.h>
#include <string.h>

enum {
    NS_PER_MS = 1000000,
    DRAIN_MAX = 64 // messages handed to a link at once before the loop reads what has arrived
};

/* ---- events of the transport ---- */

/* Call with the mesh locked. */
static struct strait_mesh_peer_state *find_peer(struct strait_mesh *mesh,
                                                const strait_fingerprint *key) {
    for (int i = 0; i < mesh->n_peers; i++)
        if (strait_fingerprint_equal(&mesh->peers[i]->key, key)) return mesh->peers[i];
    return NULL;
}

/* Admits only keys of peers that were added. */
static strait_err admit(void *user, const strait_fingerprint *peer, strait_emulate_spec *emulate) {
    struct strait_mesh *mesh = user;
    pthread_mutex_lock(&mesh->mutex);
    const struct strait_mesh_peer_state *m = find_peer(mesh, peer);
    if (m != NULL && m->has_emulate) *emulate = m->emulate;
    pthread_mutex_unlock(&mesh->mutex);
    if (m != NULL) return STRAIT_OK;
    char key[STRAIT_FINGERPRINT_TEXT];
    strait_fingerprint_text(peer, key);
    return STRAIT_FAIL(STRAIT_EAUTH,
                       "key %s is unknown to '%s': another run or program is connecting to this "
                       "address",
                       key, mesh->config.transport.name);
}

static void refused(void *user, strait_err why) {
    struct strait_mesh *mesh = user;
    pthread_mutex_lock(&mesh->mutex);
    mesh->n_refused++;
    (void)snprintf(mesh->refused, sizeof mesh->refused, "%s: %.440s", strait_err_text(why),
                   strait_err_detail());
    pthread_mutex_unlock(&mesh->mutex);
}

/* Puts UP or DOWN into the inbox. Call with the mesh locked. */
static void notify(struct strait_mesh *mesh, const struct strait_mesh_peer_state *m, uint8_t type) {
    struct strait_msg *msg = NULL;
    const size_t bytes = type == STRAIT_MSG_DOWN ? strlen(m->reason) + 1 : 0;
    /* Without memory the notice is lost; strait_mesh_is_up still tells the truth. */
    if (strait_msg_open(mesh->pool, type, bytes, &msg) != STRAIT_OK) return;
    memcpy(msg->body, m->reason, bytes);
    msg->peer = m->index;
    msg->why = type == STRAIT_MSG_DOWN ? m->why : STRAIT_OK;
    strait_priority_queue_push(&mesh->inbox, &msg);
    pthread_cond_signal(&mesh->arrived);
    pthread_cond_broadcast(&mesh->changed);
}

/* Moves queued messages to the link until it is full. The mutex is released around every send,
 * because send() may deliver events that take it. */
static void drain(struct strait_mesh *mesh, struct strait_mesh_peer_state *m) {
    strait_err err = STRAIT_OK;
    for (int n = 0; m->link != NULL && err == STRAIT_OK; n++) {
        if (n == DRAIN_MAX) {
            mesh->t->ops->wake(mesh->t); // come back after reading
            return;
        }
        pthread_mutex_lock(&mesh->mutex);
        struct strait_msg *msg = m->is_up ? strait_priority_queue_pop(&m->out) : NULL;
        pthread_mutex_unlock(&mesh->mutex);
        if (msg == NULL) return;
        err = strait_link_send(m->link, &msg);
        pthread_mutex_lock(&mesh->mutex);
        if (msg != NULL)
            strait_priority_queue_push_front(&m->out, &msg); // declined: keep its place
        pthread_cond_broadcast(&mesh->changed);
        pthread_mutex_unlock(&mesh->mutex);
    }
}

/* A peer's link is ready: replaces an older link and sends what is queued. */
static void opened(void *user, struct strait_link *link) {
    struct strait_mesh *mesh = user;
    pthread_mutex_lock(&mesh->mutex);
    struct strait_mesh_peer_state *m = find_peer(mesh, &link->peer);
    pthread_mutex_unlock(&mesh->mutex);
    if (m == NULL) { // cannot happen: admit() or the dialled key named a peer
        strait_link_close(link, STRAIT_FAIL(STRAIT_EAUTH, "no peer of this mesh has this key"));
        return;
    }
    if (m->link != NULL && m->link != link) { // the peer reconnected before we noticed the loss
        m->link->user = NULL;
        strait_link_close(m->link, STRAIT_FAIL(STRAIT_ECLOSED,
                                               "replaced by a newer connection of the same peer"));
    }
    m->link = link;
    m->n_rejected = 0;
    m->redial_ms = mesh->config.redial_ms;
    link->user = m;
    pthread_mutex_lock(&mesh->mutex);
    m->is_up = 1;
    m->why = STRAIT_OK;
    if (mesh->config.drops_unsent) strait_priority_queue_clear(&m->out); // all from before UP
    memcpy(m->remote, link->remote, sizeof m->remote);
    const int must_pause = mesh->is_paused;
    notify(mesh, m, STRAIT_MSG_UP);
    pthread_mutex_unlock(&mesh->mutex);
    if (must_pause) link->transport->ops->pause(link, 1);
    drain(mesh, m);
}

/* Queues a message in the inbox; pauses all links when the inbox is too full. */
static void received(void *user, struct strait_link *link, struct strait_msg **msg) {
    struct strait_mesh *mesh = user;
    const struct strait_mesh_peer_state *m = link->user;
    if (m == NULL) return;
    (*msg)->peer = m->index;
    pthread_mutex_lock(&mesh->mutex);
    strait_priority_queue_push(&mesh->inbox, msg);
    const int must_pause = strait_priority_queue_is_over(&mesh->inbox, mesh->config.inbox_bytes,
                                                         1) &&
                           !mesh->is_paused;
    if (must_pause) mesh->is_paused = 1;
    pthread_cond_signal(&mesh->arrived);
    const int n_peers = mesh->n_peers;
    pthread_mutex_unlock(&mesh->mutex);
    for (int i = 0; must_pause && i < n_peers; i++)
        if (mesh->peers[i]->link != NULL) link->transport->ops->pause(mesh->peers[i]->link, 1);
}

static void writable(void *user, struct strait_link *link) {
    if (link->user != NULL) drain(user, link->user);
}

static int count_addresses(const struct strait_mesh_peer_state *m) {
    int n = 1;
    for (const char *c = m->address; *c != '\0'; c++)
        n += *c == ',';
    return n;
}

/* Decides whether a refusal is final. Another program may answer at one of several addresses, so it
 * is final only after every address has refused us in a row. */
static strait_err final_error(struct strait_mesh_peer_state *m, strait_err why) {
    if (why == STRAIT_OK) return STRAIT_ECLOSED;
    if (why != STRAIT_EAUTH && why != STRAIT_EPROTO) return why;
    return ++m->n_rejected < count_addresses(m) ? STRAIT_ECLOSED : why;
}

/* Notifies readers of the loss and plans the next dial. The pause doubles with every failure and is
 * reset when a link opens. */
static void closed(void *user, struct strait_link *link, strait_err why) {
    struct strait_mesh *mesh = user;
    struct strait_mesh_peer_state *m = link->user;
    if (m == NULL || m->link != link) return; // replaced by a newer link
    strait_link_stats stats;
    link->transport->ops->stats(link, &stats);
    m->link = NULL;
    m->redial_ns = strait_clock_ns() + (int64_t)m->redial_ms * NS_PER_MS;
    m->redial_ms = m->redial_ms * 2 < mesh->config.redial_max_ms ? m->redial_ms * 2
                                                                 : mesh->config.redial_max_ms;
    const strait_err outcome = final_error(m, why);
    pthread_mutex_lock(&mesh->mutex);
    const int is_final = outcome == STRAIT_EAUTH || outcome == STRAIT_EPROTO;
    const int must_notify = m->is_up || is_final;
    strait_stats_add(&m->past, &stats);
    if (!m->is_up) m->next_address++; // a link that was up is dialled at the same address again
    m->is_up = 0;
    m->why = outcome;
    (void)snprintf(m->reason, sizeof m->reason, "%s at %.440s", m->name, strait_err_detail());
    if (must_notify) notify(mesh, m, STRAIT_MSG_DOWN);
    pthread_mutex_unlock(&mesh->mutex);
}

const struct strait_transport_events strait_mesh_events = {
    .admit = admit,
    .refused = refused,
    .opened = opened,
    .received = received,
    .writable = writable,
    .closed = closed,
};

/* ---- the loop ---- */

/* Runs the functions that other threads wait for (mesh.c, call). */
static void run_calls(struct strait_mesh *mesh) {
    for (;;) {
        pthread_mutex_lock(&mesh->mutex);
        struct strait_mesh_call *call = mesh->calls;
        if (call != NULL) mesh->calls = call->next;
        pthread_mutex_unlock(&mesh->mutex);
        if (call == NULL) return;
        const strait_err err = call->run(mesh, call->arg);
        pthread_mutex_lock(&mesh->mutex);
        call->err = err;
        if (err != STRAIT_OK)
            (void)snprintf(call->reason, sizeof call->reason, "%s", strait_err_detail());
        call->is_done = 1;
        pthread_cond_broadcast(&mesh->changed);
        pthread_mutex_unlock(&mesh->mutex);
    }
}

/* Copies the address that is next in turn to m->dialled. */
static void choose_address(struct strait_mesh *mesh, struct strait_mesh_peer_state *m) {
    const char *part = m->address;
    for (int i = m->next_address % count_addresses(m); i > 0; i--)
        part = strchr(part, ',') + 1;
    pthread_mutex_lock(&mesh->mutex);
    (void)snprintf(m->dialled, sizeof m->dialled, "%.*s", (int)strcspn(part, ","), part);
    pthread_mutex_unlock(&mesh->mutex);
}

static void dial(struct strait_mesh *mesh, struct strait_mesh_peer_state *m) {
    const strait_dial_params params = {.expected = &m->key,
                                       .emulate = m->has_emulate ? &m->emulate : NULL,
                                       .dial_classes = m->dial_classes,
                                       .user = m};
    choose_address(mesh, m);
    const strait_err err = strait_transport_dial(mesh->t, m->dialled, params, &m->link);
    if (err == STRAIT_OK) return;
    m->next_address++;
    m->redial_ns = strait_clock_ns() + (int64_t)m->redial_ms * NS_PER_MS;
    pthread_mutex_lock(&mesh->mutex);
    m->why = err;
    (void)snprintf(m->reason, sizeof m->reason, "%s at %.440s", m->name, strait_err_detail());
    pthread_mutex_unlock(&mesh->mutex);
}

/* Dials peers whose pause is over and sends what is queued. Returns the milliseconds until the next
 * dial, -1 when none is planned; *out_queued tells whether messages for open links remain. */
static int serve_peers(struct strait_mesh *mesh, int *out_queued) {
    pthread_mutex_lock(&mesh->mutex);
    const int n_peers = mesh->n_peers;
    const int is_stopping = mesh->is_stopping;
    const int must_resume = mesh->is_paused && !strait_priority_queue_is_over(
                                                   &mesh->inbox, mesh->config.inbox_bytes / 2, 2);
    if (must_resume) mesh->is_paused = 0;
    pthread_mutex_unlock(&mesh->mutex);

    int64_t wait_ns = INT64_MAX;
    *out_queued = 0;
    for (int i = 0; i < n_peers; i++) {
        struct strait_mesh_peer_state *m = mesh->peers[i];
        if (must_resume && m->link != NULL) mesh->t->ops->pause(m->link, 0);
        drain(mesh, m);
        pthread_mutex_lock(&mesh->mutex);
        const int is_final = m->why == STRAIT_EAUTH || m->why == STRAIT_EPROTO;
        if (m->is_up && m->out.n_messages > 0) *out_queued = 1;
        pthread_mutex_unlock(&mesh->mutex);
        if (m->link != NULL || m->address[0] == 0 || is_final || is_stopping) continue;
        const int64_t left_ns = m->redial_ns - strait_clock_ns();
        if (left_ns <= 0) dial(mesh, m);
        const int64_t next_ns = left_ns > 0 ? left_ns : (int64_t)m->redial_ms * NS_PER_MS;
        if (next_ns < wait_ns) wait_ns = next_ns;
    }
    return wait_ns == INT64_MAX ? -1 : (int)(wait_ns / NS_PER_MS) + 1;
}

void *strait_mesh_thread(void *arg) {
    struct strait_mesh *mesh = arg;
    int64_t stop_ns = INT64_MAX;
    int is_queued = 0;
    while (strait_clock_ns() < stop_ns) {
        run_calls(mesh);
        const int timeout_ms = serve_peers(mesh, &is_queued);
        pthread_mutex_lock(&mesh->mutex);
        const int is_stopping = mesh->is_stopping;
        pthread_mutex_unlock(&mesh->mutex);
        if (is_stopping && !is_queued) break;
        if (is_stopping && stop_ns == INT64_MAX)
            stop_ns = strait_clock_ns() + (int64_t)mesh->t->config.linger_ms * NS_PER_MS;
        (void)mesh->t->ops->progress(mesh->t, is_stopping ? 10 : timeout_ms);
    }
    /* Here rather than in strait_mesh_close: closing delivers events, which belong to this thread.
     */
    strait_transport_close(&mesh->t);
    return NULL;
}
