/* mesh.c - the functions of mesh.h, which any thread but the net thread may call. */
#include "net/mesh/mesh.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "net/mesh/mesh_state.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    INBOX_BYTES = 256 * 1024 * 1024 // a stage that computes may leave this much unread
};

/* Deadlines are monotonic: a change of the system's time must not end or extend a wait. */
static void init_condition(pthread_cond_t *condition) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

/* The transport receives into the mesh's own pool: messages may outlive the transport. */
static void set_config(struct strait_mesh *mesh, const strait_mesh_config *config) {
    mesh->config = *config;
    mesh->config.transport.pool = mesh->pool;
    if (mesh->config.queue_bytes == 0) mesh->config.queue_bytes = STRAIT_MESH_QUEUE;
    if (mesh->config.inbox_bytes == 0) mesh->config.inbox_bytes = INBOX_BYTES;
    if (mesh->config.redial_ms == 0) mesh->config.redial_ms = 50;
    if (mesh->config.redial_max_ms == 0) mesh->config.redial_max_ms = 2000;
}

strait_err strait_mesh_open(const strait_mesh_config *config, struct strait_mesh **out) {
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(struct strait_mesh), "mesh", &memory));
    struct strait_mesh *mesh = memory;
    pthread_mutex_init(&mesh->mutex, NULL);
    init_condition(&mesh->arrived);
    init_condition(&mesh->changed);
    strait_err err = STRAIT_OK;
    STRAIT_TRY_GOTO(err, fail, strait_msg_pool_open(&mesh->pool));
    set_config(mesh, config);
    STRAIT_TRY_GOTO(err, fail,
                    strait_transport_open(config->scheme, &strait_mesh_events, mesh,
                                          &mesh->config.transport, &mesh->t));
    mesh->config.transport = mesh->t->config; // with the defaults filled in
    if (pthread_create(&mesh->thread, NULL, strait_mesh_thread, mesh) != 0) {
        err = STRAIT_FAIL(STRAIT_ENOMEM,
                          "cannot start the network thread: too many threads or too little memory");
        goto fail;
    }
    mesh->has_thread = 1; // strait_mesh_close joins it
    *out = mesh;
    return STRAIT_OK;
fail:
    strait_mesh_close(&mesh);
    return err;
}

/* Call with the mesh locked: the net thread closes the transport once is_stopping is set. */
static void wake(struct strait_mesh *mesh) {
    if (!mesh->is_stopping) mesh->t->ops->wake(mesh->t);
}

void strait_mesh_close(struct strait_mesh **mesh) {
    struct strait_mesh *self = *mesh;
    if (self == NULL) return;
    if (self->has_thread) {
        pthread_mutex_lock(&self->mutex);
        wake(self);
        self->is_stopping = 1;
        pthread_mutex_unlock(&self->mutex);
        pthread_join(self->thread, NULL);
    }
    strait_transport_close(&self->t); // still open only if the thread never started
    for (int i = 0; i < self->n_peers; i++) {
        strait_priority_queue_clear(&self->peers[i]->out);
        strait_alloc_free(self->peers[i]);
    }
    strait_priority_queue_clear(&self->inbox);
    strait_msg_pool_close(&self->pool);
    pthread_cond_destroy(&self->arrived);
    pthread_cond_destroy(&self->changed);
    pthread_mutex_destroy(&self->mutex);
    strait_alloc_free(self);
    *mesh = NULL;
}

/* Not locked: the pool has a lock of its own. */
struct strait_msg_pool *strait_mesh_pool(struct strait_mesh *mesh) {
    return mesh->pool;
}

/* Runs a function on the net thread and waits for it. The transport is not locked, so only the net
 * thread may touch it. */
static strait_err call(struct strait_mesh *mesh, strait_err (*run)(struct strait_mesh *, void *),
                       void *arg) {
    struct strait_mesh_call request = {.run = run, .arg = arg};
    pthread_mutex_lock(&mesh->mutex);
    request.next = mesh->calls;
    mesh->calls = &request;
    wake(mesh);
    /* `changed` is broadcast for many reasons; only is_done ends the wait. */
    while (!request.is_done)
        pthread_cond_wait(&mesh->changed, &mesh->mutex);
    pthread_mutex_unlock(&mesh->mutex);
    if (request.err != STRAIT_OK) strait_err_note(__FILE__, __LINE__, "%s", request.reason);
    return request.err;
}

struct listen_args {
    const char *address;
    char out[STRAIT_ADDRESS_MAX];
};

static strait_err run_listen(struct strait_mesh *mesh, void *arg) {
    struct listen_args *a = arg;
    return strait_transport_listen(mesh->t, a->address, a->out);
}

strait_err strait_mesh_listen(struct strait_mesh *mesh, const char *address,
                              char out[STRAIT_ADDRESS_MAX]) {
    struct listen_args args = {.address = address};
    STRAIT_TRY(call(mesh, run_listen, &args));
    memcpy(out, args.out, sizeof args.out);
    return STRAIT_OK;
}

/* Adds a peer and has the net thread dial it. Call with the mesh locked. */
static strait_err insert(struct strait_mesh *mesh, struct strait_mesh_peer_state *m) {
    if (mesh->n_peers == STRAIT_PEERS_MAX)
        return STRAIT_FAIL(STRAIT_EINVAL, "cannot add '%s': a mesh has at most %d peers", m->name,
                           STRAIT_PEERS_MAX);
    for (int i = 0; i < mesh->n_peers; i++)
        if (strait_fingerprint_equal(&mesh->peers[i]->key, &m->key))
            return STRAIT_FAIL(STRAIT_EINVAL, "cannot add '%s': it has the same key as '%s'",
                               m->name, mesh->peers[i]->name);
    /* Peers are never removed, so the net thread may use a pointer without the mutex. */
    m->index = mesh->n_peers;
    mesh->peers[mesh->n_peers++] = m;
    wake(mesh);
    return STRAIT_OK;
}

strait_err strait_mesh_add(struct strait_mesh *mesh, const strait_mesh_peer *peer, int *out) {
    if (peer->address != NULL && strlen(peer->address) >= STRAIT_ADDRESS_MAX)
        return STRAIT_FAIL(STRAIT_EINVAL, "address '%.60s...' of '%s': longer than %d characters",
                           peer->address, peer->name, STRAIT_ADDRESS_MAX - 1);
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(struct strait_mesh_peer_state), "peer", &memory));
    struct strait_mesh_peer_state *m = memory;
    memcpy(m->name, peer->name, sizeof m->name);
    m->name[sizeof m->name - 1] = 0;
    m->key = peer->key;
    if (peer->address != NULL) (void)snprintf(m->address, sizeof m->address, "%s", peer->address);
    m->dial_classes = peer->dial_classes;
    m->has_emulate = peer->emulate != NULL;
    if (peer->emulate != NULL) m->emulate = *peer->emulate;
    m->why = STRAIT_ECLOSED;
    if (peer->address != NULL)
        (void)snprintf(m->reason, sizeof m->reason, "%s at %s: has not answered yet", m->name,
                       m->address);
    else
        (void)snprintf(m->reason, sizeof m->reason,
                       "%s: has not connected to us yet; check that it runs and can reach "
                       "the address we listen at",
                       m->name);
    m->redial_ms = mesh->config.redial_ms;
    pthread_mutex_lock(&mesh->mutex);
    const strait_err err = insert(mesh, m);
    const int index = m->index;
    pthread_mutex_unlock(&mesh->mutex);
    if (err != STRAIT_OK) {
        strait_alloc_free(m);
        return err;
    }
    *out = index;
    return STRAIT_OK;
}

/* Waits on `condition`; returns 0 when the deadline has passed. Call with the mesh locked. */
static int wait_until(struct strait_mesh *mesh, pthread_cond_t *condition, int64_t until_ns) {
    if (until_ns == INT64_MAX) return pthread_cond_wait(condition, &mesh->mutex) == 0;
    const struct timespec until = {.tv_sec = until_ns / 1000000000,
                                   .tv_nsec = until_ns % 1000000000};
    return pthread_cond_timedwait(condition, &mesh->mutex, &until) != ETIMEDOUT;
}

/* One deadline for a whole call, however often it is woken. */
static int64_t deadline(int timeout_ms) {
    return timeout_ms < 0 ? INT64_MAX : strait_clock_ns() + (int64_t)timeout_ms * 1000000;
}

/* Call with the mesh locked. */
static strait_err find(struct strait_mesh *mesh, int peer, struct strait_mesh_peer_state **out) {
    if (peer < 0 || peer >= mesh->n_peers)
        return STRAIT_FAIL(STRAIT_EINVAL, "unknown peer number %d, expected 0 to %d", peer,
                           mesh->n_peers - 1);
    *out = mesh->peers[peer];
    return STRAIT_OK;
}

/* Describes why the link to `m` is not up. Callers that wait less than a second ask again, so the
 * time of one call would mislead. A peer that dials us has failed before it could be told
 * apart from others, for example by its protocol version, so the latest refusal is named too. */
static strait_err no_link(const struct strait_mesh *mesh, const struct strait_mesh_peer_state *m,
                          int timeout_ms) {
    char time[32] = "";
    if (timeout_ms >= 1000) (void)snprintf(time, sizeof time, " within %d ms", timeout_ms);
    if (m->address[0] == 0 && mesh->n_refused > 0)
        return STRAIT_FAIL(STRAIT_ETIMEDOUT, "no link%s: %.200s; latest refused connection: %.250s",
                           time, m->reason, mesh->refused);
    return STRAIT_FAIL(STRAIT_ETIMEDOUT, "no link%s: %s", time, m->reason);
}

/* Call with the mesh locked. */
static strait_err wait_up(struct strait_mesh *mesh, int peer, int timeout_ms) {
    struct strait_mesh_peer_state *m = NULL;
    STRAIT_TRY(find(mesh, peer, &m));
    const int64_t until = deadline(timeout_ms);
    while (!m->is_up) {
        /* Refusals are final: dialling again would be refused again. */
        if (m->why == STRAIT_EAUTH || m->why == STRAIT_EPROTO)
            return STRAIT_FAIL(m->why, "%s", m->reason);
        if (!wait_until(mesh, &mesh->changed, until)) return no_link(mesh, m, timeout_ms);
    }
    return STRAIT_OK;
}

strait_err strait_mesh_wait_up(struct strait_mesh *mesh, int peer, int timeout_ms) {
    pthread_mutex_lock(&mesh->mutex);
    const strait_err err = wait_up(mesh, peer, timeout_ms);
    pthread_mutex_unlock(&mesh->mutex);
    return err;
}

int strait_mesh_is_up(struct strait_mesh *mesh, int peer) {
    pthread_mutex_lock(&mesh->mutex);
    const int is_up = peer >= 0 && peer < mesh->n_peers && mesh->peers[peer]->is_up;
    pthread_mutex_unlock(&mesh->mutex);
    return is_up;
}

/* Checked here, in the caller's thread: the net thread could only close the link. */
static strait_err check_message(const struct strait_mesh *mesh, const struct strait_msg *msg) {
    const size_t size_max = mesh->config.transport.message_max;
    if (msg->size > size_max)
        return STRAIT_FAIL(STRAIT_EINVAL,
                           "cannot send a message of %zu bytes, expected at most %zu", msg->size,
                           size_max);
    if (msg->type < STRAIT_MSG_FIRST)
        return STRAIT_FAIL(STRAIT_EINVAL, "cannot send a message of type %d, expected %d to 255",
                           msg->type, STRAIT_MSG_FIRST);
    if (msg->priority >= STRAIT_N_PRIORITIES || msg->size > msg->capacity)
        return STRAIT_FAIL(STRAIT_EINVAL,
                           "cannot send a message of priority %d with %zu of %zu bytes",
                           msg->priority, msg->size, msg->capacity);
    return STRAIT_OK;
}

/* Queues *msg, waiting until `until_ns` for capacity; 0: without waiting. Call with the mesh
 * locked.
 */
static strait_err enqueue(struct strait_mesh *mesh, int peer, int64_t until_ns,
                          struct strait_msg **msg) {
    struct strait_mesh_peer_state *m = NULL;
    STRAIT_TRY(check_message(mesh, *msg));
    STRAIT_TRY(find(mesh, peer, &m));
    while (strait_priority_queue_is_full(&m->out, *msg, mesh->config.queue_bytes))
        if (until_ns == 0 || !wait_until(mesh, &mesh->changed, until_ns)) return STRAIT_EAGAIN;
    (*msg)->queued_ns = strait_clock_ns(); // the emulated wire starts from here
    strait_priority_queue_push(&m->out, msg);
    wake(mesh);
    return STRAIT_OK;
}

strait_err strait_mesh_send(struct strait_mesh *mesh, int peer, struct strait_msg **msg) {
    pthread_mutex_lock(&mesh->mutex);
    const strait_err err = enqueue(mesh, peer, 0, msg);
    pthread_mutex_unlock(&mesh->mutex);
    return err;
}

strait_err strait_mesh_send_wait(struct strait_mesh *mesh, int peer, int timeout_ms,
                                 struct strait_msg **msg) {
    pthread_mutex_lock(&mesh->mutex);
    strait_err err = enqueue(mesh, peer, deadline(timeout_ms), msg);
    if (err == STRAIT_EAGAIN)
        err = STRAIT_FAIL(
            STRAIT_ETIMEDOUT,
            "%s: its send queue stayed full for %d ms: the peer or the network is too "
            "slow, or the link is down",
            mesh->peers[peer]->name, timeout_ms);
    pthread_mutex_unlock(&mesh->mutex);
    return err;
}

strait_err strait_mesh_receive(struct strait_mesh *mesh, int timeout_ms, struct strait_msg **out) {
    const int64_t until = deadline(timeout_ms);
    pthread_mutex_lock(&mesh->mutex);
    struct strait_msg *msg = strait_priority_queue_pop(&mesh->inbox);
    while (msg == NULL && wait_until(mesh, &mesh->arrived, until))
        msg = strait_priority_queue_pop(&mesh->inbox);
    /* Resume at half of the limit, so that links are not paused and resumed for every message. */
    if (mesh->is_paused &&
        !strait_priority_queue_is_over(&mesh->inbox, mesh->config.inbox_bytes / 2, 2))
        wake(mesh);
    pthread_mutex_unlock(&mesh->mutex);
    if (msg == NULL) return STRAIT_FAIL(STRAIT_ETIMEDOUT, "no message within %d ms", timeout_ms);
    *out = msg;
    return STRAIT_OK;
}

/* Only the net thread may ask the transport for counters, so the request is passed to it. */
struct stats_args {
    int peer;
    strait_link_stats *out;
};

static strait_err run_stats(struct strait_mesh *mesh, void *arg) {
    const struct stats_args *a = arg;
    struct strait_mesh_peer_state *m = NULL;
    pthread_mutex_lock(&mesh->mutex); // not held while the transport is asked below
    const strait_err err = find(mesh, a->peer, &m);
    strait_link_stats past = {0};
    size_t queued = 0;
    if (err == STRAIT_OK) {
        past = m->past;
        queued = m->out.n_bytes;
    }
    pthread_mutex_unlock(&mesh->mutex);
    if (err != STRAIT_OK) return err;
    strait_link_stats now = {0};
    if (m->link != NULL) mesh->t->ops->stats(m->link, &now);
    strait_stats_add(&now, &past);
    now.queued_bytes += queued;
    *a->out = now;
    return STRAIT_OK;
}

strait_err strait_mesh_stats(struct strait_mesh *mesh, int peer, strait_link_stats *out) {
    struct stats_args args = {.peer = peer, .out = out};
    return call(mesh, run_stats, &args);
}

/* Under the lock, since the net thread replaces the address when it dials. */
strait_err strait_mesh_last_address(struct strait_mesh *mesh, int peer,
                                    char out[STRAIT_ADDRESS_MAX]) {
    struct strait_mesh_peer_state *m = NULL;
    pthread_mutex_lock(&mesh->mutex);
    const strait_err err = find(mesh, peer, &m);
    if (err == STRAIT_OK) memcpy(out, m->dialled, sizeof m->dialled);
    pthread_mutex_unlock(&mesh->mutex);
    return err;
}

strait_err strait_mesh_remote(struct strait_mesh *mesh, int peer, char out[STRAIT_ADDRESS_MAX]) {
    struct strait_mesh_peer_state *m = NULL;
    pthread_mutex_lock(&mesh->mutex);
    const strait_err err = find(mesh, peer, &m);
    if (err == STRAIT_OK) memcpy(out, m->remote, sizeof m->remote);
    pthread_mutex_unlock(&mesh->mutex);
    return err;
}

int64_t strait_mesh_refusals(struct strait_mesh *mesh, char out[STRAIT_REASON_MAX]) {
    pthread_mutex_lock(&mesh->mutex);
    const int64_t n = mesh->n_refused;
    memcpy(out, mesh->refused, STRAIT_REASON_MAX);
    pthread_mutex_unlock(&mesh->mutex);
    return n;
}
