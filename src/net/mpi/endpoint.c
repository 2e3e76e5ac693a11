#include "net/mpi/endpoint.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/clock.h"

#include <stdio.h>
#include <string.h>

enum {
    HEADS_MAX = 64 // received in one poll, so that sending gets its turn
};

/* What MPI still used when its endpoint was closed. */
static struct {
    pthread_mutex_t mutex;
    struct strait_mpi_outgoing *sending;   // guarded by mutex
    struct strait_mpi_incoming *receiving; // guarded by mutex
} rest = {.mutex = PTHREAD_MUTEX_INITIALIZER};

int strait_mpi_endpoint_tag(uint64_t number) {
    return (int)(2 * (number & 0xffffffff));
}

/* The error of the calling thread becomes that of all links of this endpoint. */
static void break_endpoint(struct strait_mpi_endpoint *endpoint, strait_err err) {
    if (endpoint->broken != STRAIT_OK) return;
    endpoint->broken = err;
    (void)snprintf(endpoint->reason, sizeof endpoint->reason, "%s", strait_err_detail());
}

/* ---- sending ---- */

static strait_err take_outgoing(struct strait_mpi_endpoint *endpoint,
                                struct strait_mpi_outgoing **out) {
    struct strait_mpi_outgoing *o = endpoint->spare_out;
    if (o == NULL) return strait_alloc(1, sizeof *o, "MPI message", (void **)out);
    endpoint->spare_out = o->next;
    *o = (struct strait_mpi_outgoing){.next = NULL};
    *out = o;
    return STRAIT_OK;
}

static void free_outgoing(struct strait_mpi_endpoint *endpoint, struct strait_mpi_outgoing *o) {
    strait_msg_close(&o->body);
    o->next = endpoint->spare_out;
    endpoint->spare_out = o;
}

static void begin_sending(struct strait_mpi_endpoint *endpoint, struct strait_mpi_outgoing *o) {
    const size_t bytes = o->body != NULL ? o->body->size : 0;
    o->is_done[1] = bytes == 0;
    if (!endpoint->mpi->send((int)(o->to >> 32), strait_mpi_endpoint_tag(o->to), o->head,
                             o->head_bytes, bytes > 0 ? o->body->body : NULL, bytes, o->requests)) {
        break_endpoint(endpoint, STRAIT_FAIL(STRAIT_ECLOSED, "MPI cannot send to rank %d",
                                             (int)(o->to >> 32)));
        free_outgoing(endpoint, o);
        return;
    }
    struct strait_mpi_outgoing **at = &endpoint->sending;
    while (*at != NULL)
        at = &(*at)->next;
    o->next = NULL;
    *at = o;
}

static int send_due(struct strait_mpi_endpoint *endpoint) {
    int n = 0;
    while (endpoint->waiting != NULL && endpoint->waiting->due_ns <= strait_clock_ns()) {
        struct strait_mpi_outgoing *o = endpoint->waiting;
        endpoint->waiting = o->next;
        begin_sending(endpoint, o);
        n++;
    }
    return n;
}

strait_err strait_mpi_endpoint_send(struct strait_mpi_endpoint *endpoint, uint64_t to,
                                    struct strait_envelope *envelope) {
    struct strait_mpi_outgoing *o = NULL;
    if (envelope->due_ns == INT64_MAX) { // dropped by the emulated link
        strait_msg_close(&envelope->msg);
        return STRAIT_OK;
    }
    STRAIT_TRY(take_outgoing(endpoint, &o));
    const strait_err err = strait_mpi_pack(endpoint->config.pool, endpoint->config.run, envelope,
                                           o->head, &o->head_bytes, &o->body);
    if (err != STRAIT_OK) {
        free_outgoing(endpoint, o);
        return err;
    }
    o->to = to;
    o->due_ns = envelope->due_ns;
    /* Queued in any case: an envelope that is due must not overtake those that became due just
     * before.
     */
    struct strait_mpi_outgoing **at = &endpoint->waiting;
    while (*at != NULL && (*at)->due_ns <= o->due_ns)
        at = &(*at)->next;
    o->next = *at;
    *at = o;
    (void)send_due(endpoint);
    return STRAIT_OK;
}

static int finish_sends(struct strait_mpi_endpoint *endpoint) {
    int n = 0;
    for (struct strait_mpi_outgoing **at = &endpoint->sending; *at != NULL;) {
        struct strait_mpi_outgoing *o = *at;
        for (int i = 0; i < 2; i++) {
            if (o->is_done[i]) continue;
            const int state = endpoint->mpi->test(&o->requests[i], NULL, NULL);
            if (state < 0)
                break_endpoint(endpoint,
                               STRAIT_FAIL(STRAIT_ECLOSED, "MPI lost what was sent to rank %d",
                                           (int)(o->to >> 32)));
            o->is_done[i] = state != 0;
        }
        if (!o->is_done[0] || !o->is_done[1]) {
            at = &o->next;
            continue;
        }
        *at = o->next;
        free_outgoing(endpoint, o);
        n++;
    }
    return n;
}

/* ---- receiving ---- */

static strait_err take_incoming(struct strait_mpi_endpoint *endpoint,
                                struct strait_mpi_incoming **out) {
    struct strait_mpi_incoming *in = endpoint->spare_in;
    if (in == NULL) return strait_alloc(1, sizeof *in, "MPI message", (void **)out);
    endpoint->spare_in = in->next;
    *in = (struct strait_mpi_incoming){.next = NULL};
    *out = in;
    return STRAIT_OK;
}

static void free_incoming(struct strait_mpi_endpoint *endpoint, struct strait_mpi_incoming *in) {
    strait_msg_close(&in->envelope.msg);
    strait_frame_reader_fini(&in->reader);
    in->next = endpoint->spare_in;
    endpoint->spare_in = in;
}

/* Appends the envelope whose head has just been received. */
static strait_err add_incoming(struct strait_mpi_endpoint *endpoint, struct strait_mpi_incoming *in,
                               int source, size_t bytes) {
    int has_frame = 0;
    in->source = source;
    in->reader = (struct strait_frame_reader){.pool = endpoint->config.pool,
                                              .run = strait_get_u32(endpoint->config.run),
                                              .limit = endpoint->config.message_max};
    STRAIT_TRY(strait_mpi_unpack(endpoint->head, bytes, source, &in->envelope, &has_frame));
    in->is_complete = !has_frame;
    if (has_frame)
        memcpy(in->reader.header, endpoint->head + STRAIT_MPI_PREFIX, STRAIT_FRAME_HEADER);
    in->reader.filled = has_frame ? STRAIT_FRAME_HEADER : 0;
    if (endpoint->last_arriving != NULL)
        endpoint->last_arriving->next = in;
    else
        endpoint->arriving = in;
    endpoint->last_arriving = in;
    return STRAIT_OK;
}

static void listen_for_head(struct strait_mpi_endpoint *endpoint) {
    endpoint->is_listening = endpoint->mpi->receive(STRAIT_MPI_ANY, 2 * (int)endpoint->port,
                                                    endpoint->head, sizeof endpoint->head,
                                                    &endpoint->head_request);
    if (!endpoint->is_listening)
        break_endpoint(endpoint, STRAIT_FAIL(STRAIT_ECLOSED, "MPI cannot receive"));
}

static int receive_heads(struct strait_mpi_endpoint *endpoint) {
    int n = 0;
    while (n < HEADS_MAX && endpoint->broken == STRAIT_OK) {
        struct strait_mpi_incoming *in = NULL;
        int source = 0;
        size_t bytes = 0;
        /* Memory first: a head that was received must not be lost. */
        if (take_incoming(endpoint, &in) != STRAIT_OK) break;
        if (!endpoint->is_listening) listen_for_head(endpoint);
        const int state = endpoint->is_listening
                              ? endpoint->mpi->test(&endpoint->head_request, &source, &bytes)
                              : 0;
        if (state != 0) endpoint->is_listening = 0;
        if (state < 0) break_endpoint(endpoint, STRAIT_FAIL(STRAIT_ECLOSED, "MPI lost a message"));
        strait_err err = STRAIT_OK;
        if (state == 1) err = add_incoming(endpoint, in, source, bytes);
        if (err != STRAIT_OK) break_endpoint(endpoint, err);
        if (state != 1 || err != STRAIT_OK) {
            free_incoming(endpoint, in);
            break;
        }
        n++;
    }
    return n;
}

/* Begins or ends the body of one envelope. Without memory it is tried again at the next poll. */
static strait_err receive_body(struct strait_mpi_endpoint *endpoint,
                               struct strait_mpi_incoming *in) {
    struct strait_msg *msg = NULL;
    size_t bytes = 0;
    if (!in->is_begun) {
        const strait_err err = strait_frame_filled(&in->reader, 0, &msg);
        if (err == STRAIT_ENOMEM) return STRAIT_OK;
        STRAIT_TRY(err);
        if (msg == NULL) {
            size_t capacity = 0;
            unsigned char *space = strait_frame_space(&in->reader, &capacity);
            if (!endpoint->mpi->receive(in->source, 2 * (int)endpoint->port + 1, space, capacity,
                                        &in->request))
                return STRAIT_FAIL(STRAIT_ECLOSED, "MPI cannot receive");
            in->is_begun = 1;
            return STRAIT_OK;
        }
    } else {
        const int state = endpoint->mpi->test(&in->request, NULL, &bytes);
        if (state < 0) return STRAIT_FAIL(STRAIT_ECLOSED, "MPI lost a message");
        if (state == 0) return STRAIT_OK;
        in->is_begun = 0;
        STRAIT_TRY(strait_frame_filled(&in->reader, bytes, &msg));
        if (msg == NULL)
            return STRAIT_FAIL(STRAIT_EPROTO, "MPI: a body of %zu bytes is too short", bytes);
    }
    in->is_complete = 1;
    return strait_mpi_complete(&in->envelope, &msg);
}

/* Bodies of one rank arrive in the order of their heads, so they are received in that order. */
static int receive_bodies(struct strait_mpi_endpoint *endpoint) {
    int n = 0;
    for (struct strait_mpi_incoming *in = endpoint->arriving; in != NULL; in = in->next) {
        if (in->is_complete || endpoint->broken != STRAIT_OK) continue;
        int is_blocked = 0; // one that has no memory yet must take its body first
        for (const struct strait_mpi_incoming *prev = endpoint->arriving; prev != in;
             prev = prev->next)
            is_blocked |= prev->source == in->source && !prev->is_complete && !prev->is_begun;
        if (is_blocked) continue;
        const strait_err err = receive_body(endpoint, in);
        if (err != STRAIT_OK) break_endpoint(endpoint, err);
        n += in->is_complete;
    }
    return n;
}

int strait_mpi_endpoint_poll(struct strait_mpi_endpoint *endpoint) {
    if (endpoint->broken != STRAIT_OK) return 0;
    int n = send_due(endpoint);
    n += receive_heads(endpoint);
    n += receive_bodies(endpoint);
    n += finish_sends(endpoint);
    return n > 0;
}

/* Envelopes of one rank are taken in their order; those of another do not wait for its bodies. */
int strait_mpi_endpoint_take(struct strait_mpi_endpoint *endpoint, struct strait_envelope *out) {
    struct strait_mpi_incoming *prev = NULL;
    for (struct strait_mpi_incoming *in = endpoint->arriving; in != NULL;
         prev = in, in = in->next) {
        int is_next = in->is_complete;
        for (const struct strait_mpi_incoming *e = endpoint->arriving; e != in; e = e->next)
            is_next &= e->source != in->source;
        if (!is_next) continue;
        if (prev != NULL)
            prev->next = in->next;
        else
            endpoint->arriving = in->next;
        if (endpoint->last_arriving == in) endpoint->last_arriving = prev;
        *out = in->envelope;
        in->envelope.msg = NULL;
        free_incoming(endpoint, in);
        return 1;
    }
    return 0;
}

int64_t strait_mpi_endpoint_next_due(const struct strait_mpi_endpoint *endpoint) {
    return endpoint->waiting != NULL ? endpoint->waiting->due_ns : INT64_MAX;
}

int strait_mpi_endpoint_is_busy(const struct strait_mpi_endpoint *endpoint) {
    return endpoint->sending != NULL || endpoint->arriving != NULL;
}

static int reaches_someone(const struct strait_mpi_outgoing *o) {
    for (; o != NULL; o = o->next)
        if (strait_mpi_check((int)(o->to >> 32)) == STRAIT_OK) return 1;
    return 0;
}

int strait_mpi_endpoint_is_sending(const struct strait_mpi_endpoint *endpoint) {
    return endpoint->broken == STRAIT_OK &&
           (reaches_someone(endpoint->sending) || reaches_someone(endpoint->waiting));
}

/* ---- memory ---- */

strait_err strait_mpi_endpoint_reserve(struct strait_mpi_endpoint *endpoint, int n) {
    for (int i = 0; i < n; i++) {
        struct strait_mpi_outgoing *o = NULL;
        struct strait_mpi_incoming *in = NULL;
        STRAIT_TRY(strait_alloc(1, sizeof *o, "MPI message", (void **)&o));
        free_outgoing(endpoint, o);
        STRAIT_TRY(strait_alloc(1, sizeof *in, "MPI message", (void **)&in));
        free_incoming(endpoint, in);
    }
    return STRAIT_OK;
}

static void free_all_outgoing(struct strait_mpi_outgoing **first) {
    while (*first != NULL) {
        struct strait_mpi_outgoing *o = *first;
        *first = o->next;
        strait_msg_close(&o->body);
        strait_alloc_free(o);
    }
}

static void free_all_incoming(struct strait_mpi_incoming **first) {
    while (*first != NULL) {
        struct strait_mpi_incoming *in = *first;
        *first = in->next;
        strait_msg_close(&in->envelope.msg);
        strait_frame_reader_fini(&in->reader);
        strait_alloc_free(in);
    }
}

void strait_mpi_endpoint_fini(struct strait_mpi_endpoint *endpoint) {
    if (endpoint->is_listening) endpoint->mpi->cancel(&endpoint->head_request);
    pthread_mutex_lock(&rest.mutex);
    while (endpoint->sending != NULL) {
        struct strait_mpi_outgoing *o = endpoint->sending;
        endpoint->sending = o->next;
        o->next = rest.sending;
        rest.sending = o;
    }
    while (endpoint->arriving != NULL) {
        struct strait_mpi_incoming *in = endpoint->arriving;
        endpoint->arriving = in->next;
        in->next = in->is_begun ? rest.receiving : endpoint->spare_in;
        *(in->is_begun ? &rest.receiving : &endpoint->spare_in) = in;
    }
    pthread_mutex_unlock(&rest.mutex);
    free_all_outgoing(&endpoint->waiting);
    free_all_outgoing(&endpoint->spare_out);
    free_all_incoming(&endpoint->spare_in);
}

void strait_mpi_endpoint_free_rest(void) {
    pthread_mutex_lock(&rest.mutex);
    free_all_outgoing(&rest.sending);
    free_all_incoming(&rest.receiving);
    pthread_mutex_unlock(&rest.mutex);
}
