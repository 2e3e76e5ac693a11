#include "net/mpi/box.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/clock.h"

#include <stdio.h>
#include <string.h>

enum {
    HEADS_MAX = 64 // received in one poll, so that sending gets its turn
};

/* What MPI still used when its mailbox was closed. */
static struct {
    pthread_mutex_t mutex;
    struct strait_mpi_outgoing *sending;   // guarded by mutex
    struct strait_mpi_incoming *receiving; // guarded by mutex
} rest = {.mutex = PTHREAD_MUTEX_INITIALIZER};

int strait_mpi_box_tag(uint64_t number) {
    return (int)(2 * (number & 0xffffffff));
}

/* The error of the calling thread becomes that of all links of this mailbox. */
static void break_box(struct strait_mpi_box *box, strait_err err) {
    if (box->broken != STRAIT_OK) return;
    box->broken = err;
    (void)snprintf(box->reason, sizeof box->reason, "%s", strait_err_detail());
}

/* ---- sending ---- */

static strait_err take_outgoing(struct strait_mpi_box *box, struct strait_mpi_outgoing **out) {
    struct strait_mpi_outgoing *o = box->spare_out;
    if (o == NULL) return strait_alloc(1, sizeof *o, "MPI message", (void **)out);
    box->spare_out = o->next;
    *o = (struct strait_mpi_outgoing){.next = NULL};
    *out = o;
    return STRAIT_OK;
}

static void free_outgoing(struct strait_mpi_box *box, struct strait_mpi_outgoing *o) {
    strait_msg_close(&o->body);
    o->next = box->spare_out;
    box->spare_out = o;
}

static void begin_sending(struct strait_mpi_box *box, struct strait_mpi_outgoing *o) {
    const size_t bytes = o->body != NULL ? o->body->size : 0;
    o->is_done[1] = bytes == 0;
    if (!box->mpi->send((int)(o->to >> 32), strait_mpi_box_tag(o->to), o->head, o->head_bytes,
                        bytes > 0 ? o->body->body : NULL, bytes, o->requests)) {
        break_box(box,
                  STRAIT_FAIL(STRAIT_ECLOSED, "MPI cannot send to rank %d", (int)(o->to >> 32)));
        free_outgoing(box, o);
        return;
    }
    struct strait_mpi_outgoing **at = &box->sending;
    while (*at != NULL)
        at = &(*at)->next;
    o->next = NULL;
    *at = o;
}

static int send_due(struct strait_mpi_box *box) {
    int n = 0;
    while (box->waiting != NULL && box->waiting->due_ns <= strait_clock_ns()) {
        struct strait_mpi_outgoing *o = box->waiting;
        box->waiting = o->next;
        begin_sending(box, o);
        n++;
    }
    return n;
}

strait_err strait_mpi_box_send(struct strait_mpi_box *box, uint64_t to, struct strait_mail *mail) {
    struct strait_mpi_outgoing *o = NULL;
    if (mail->due_ns == INT64_MAX) { // dropped by the emulated link
        strait_msg_close(&mail->msg);
        return STRAIT_OK;
    }
    STRAIT_TRY(take_outgoing(box, &o));
    const strait_err err = strait_mpi_pack(box->config.pool, box->config.run, mail, o->head,
                                           &o->head_bytes, &o->body);
    if (err != STRAIT_OK) {
        free_outgoing(box, o);
        return err;
    }
    o->to = to;
    o->due_ns = mail->due_ns;
    /* Queued in any case: a mail that is due must not overtake those that became due just before.
     */
    struct strait_mpi_outgoing **at = &box->waiting;
    while (*at != NULL && (*at)->due_ns <= o->due_ns)
        at = &(*at)->next;
    o->next = *at;
    *at = o;
    (void)send_due(box);
    return STRAIT_OK;
}

static int finish_sends(struct strait_mpi_box *box) {
    int n = 0;
    for (struct strait_mpi_outgoing **at = &box->sending; *at != NULL;) {
        struct strait_mpi_outgoing *o = *at;
        for (int i = 0; i < 2; i++) {
            if (o->is_done[i]) continue;
            const int state = box->mpi->test(&o->requests[i], NULL, NULL);
            if (state < 0)
                break_box(box, STRAIT_FAIL(STRAIT_ECLOSED, "MPI lost what was sent to rank %d",
                                           (int)(o->to >> 32)));
            o->is_done[i] = state != 0;
        }
        if (!o->is_done[0] || !o->is_done[1]) {
            at = &o->next;
            continue;
        }
        *at = o->next;
        free_outgoing(box, o);
        n++;
    }
    return n;
}

/* ---- receiving ---- */

static strait_err take_incoming(struct strait_mpi_box *box, struct strait_mpi_incoming **out) {
    struct strait_mpi_incoming *in = box->spare_in;
    if (in == NULL) return strait_alloc(1, sizeof *in, "MPI message", (void **)out);
    box->spare_in = in->next;
    *in = (struct strait_mpi_incoming){.next = NULL};
    *out = in;
    return STRAIT_OK;
}

static void free_incoming(struct strait_mpi_box *box, struct strait_mpi_incoming *in) {
    strait_msg_close(&in->mail.msg);
    strait_frame_reader_fini(&in->reader);
    in->next = box->spare_in;
    box->spare_in = in;
}

/* Appends the mail whose head has just been received. */
static strait_err add_incoming(struct strait_mpi_box *box, struct strait_mpi_incoming *in,
                               int source, size_t bytes) {
    int has_frame = 0;
    in->source = source;
    in->reader = (struct strait_frame_reader){.pool = box->config.pool,
                                              .run = strait_get_u32(box->config.run),
                                              .limit = box->config.message_max};
    STRAIT_TRY(strait_mpi_unpack(box->head, bytes, &in->mail, &has_frame));
    in->is_complete = !has_frame;
    if (has_frame) memcpy(in->reader.header, box->head + STRAIT_MPI_PREFIX, STRAIT_FRAME_HEADER);
    in->reader.filled = has_frame ? STRAIT_FRAME_HEADER : 0;
    if (box->last_arriving != NULL)
        box->last_arriving->next = in;
    else
        box->arriving = in;
    box->last_arriving = in;
    return STRAIT_OK;
}

static void listen_for_head(struct strait_mpi_box *box) {
    box->is_listening = box->mpi->receive(STRAIT_MPI_ANY, 2 * (int)box->port, box->head,
                                          sizeof box->head, &box->head_request);
    if (!box->is_listening) break_box(box, STRAIT_FAIL(STRAIT_ECLOSED, "MPI cannot receive"));
}

static int receive_heads(struct strait_mpi_box *box) {
    int n = 0;
    while (n < HEADS_MAX && box->broken == STRAIT_OK) {
        struct strait_mpi_incoming *in = NULL;
        int source = 0;
        size_t bytes = 0;
        /* Memory first: a head that was received must not be lost. */
        if (take_incoming(box, &in) != STRAIT_OK) break;
        if (!box->is_listening) listen_for_head(box);
        const int state = box->is_listening ? box->mpi->test(&box->head_request, &source, &bytes)
                                            : 0;
        if (state != 0) box->is_listening = 0;
        if (state < 0) break_box(box, STRAIT_FAIL(STRAIT_ECLOSED, "MPI lost a message"));
        strait_err err = STRAIT_OK;
        if (state == 1) err = add_incoming(box, in, source, bytes);
        if (err != STRAIT_OK) break_box(box, err);
        if (state != 1 || err != STRAIT_OK) {
            free_incoming(box, in);
            break;
        }
        n++;
    }
    return n;
}

/* Begins or ends the body of one mail. Without memory it is tried again at the next poll. */
static strait_err receive_body(struct strait_mpi_box *box, struct strait_mpi_incoming *in) {
    struct strait_msg *msg = NULL;
    size_t bytes = 0;
    if (!in->is_begun) {
        const strait_err err = strait_frame_filled(&in->reader, 0, &msg);
        if (err == STRAIT_ENOMEM) return STRAIT_OK;
        STRAIT_TRY(err);
        if (msg == NULL) {
            size_t capacity = 0;
            unsigned char *space = strait_frame_space(&in->reader, &capacity);
            if (!box->mpi->receive(in->source, 2 * (int)box->port + 1, space, capacity,
                                   &in->request))
                return STRAIT_FAIL(STRAIT_ECLOSED, "MPI cannot receive");
            in->is_begun = 1;
            return STRAIT_OK;
        }
    } else {
        const int state = box->mpi->test(&in->request, NULL, &bytes);
        if (state < 0) return STRAIT_FAIL(STRAIT_ECLOSED, "MPI lost a message");
        if (state == 0) return STRAIT_OK;
        in->is_begun = 0;
        STRAIT_TRY(strait_frame_filled(&in->reader, bytes, &msg));
        if (msg == NULL)
            return STRAIT_FAIL(STRAIT_EPROTO, "MPI: a body of %zu bytes is too short", bytes);
    }
    in->is_complete = 1;
    return strait_mpi_complete(&in->mail, &msg);
}

/* Bodies of one rank arrive in the order of their heads, so they are received in that order. */
static int receive_bodies(struct strait_mpi_box *box) {
    int n = 0;
    for (struct strait_mpi_incoming *in = box->arriving; in != NULL; in = in->next) {
        if (in->is_complete || box->broken != STRAIT_OK) continue;
        int is_blocked = 0; // one that has no memory yet must take its body first
        for (const struct strait_mpi_incoming *prev = box->arriving; prev != in; prev = prev->next)
            is_blocked |= prev->source == in->source && !prev->is_complete && !prev->is_begun;
        if (is_blocked) continue;
        const strait_err err = receive_body(box, in);
        if (err != STRAIT_OK) break_box(box, err);
        n += in->is_complete;
    }
    return n;
}

int strait_mpi_box_poll(struct strait_mpi_box *box) {
    if (box->broken != STRAIT_OK) return 0;
    int n = send_due(box);
    n += receive_heads(box);
    n += receive_bodies(box);
    n += finish_sends(box);
    return n > 0;
}

/* Mails of one rank are taken in their order; those of another do not wait for its bodies. */
int strait_mpi_box_take(struct strait_mpi_box *box, struct strait_mail *out) {
    struct strait_mpi_incoming *prev = NULL;
    for (struct strait_mpi_incoming *in = box->arriving; in != NULL; prev = in, in = in->next) {
        int is_next = in->is_complete;
        for (const struct strait_mpi_incoming *e = box->arriving; e != in; e = e->next)
            is_next &= e->source != in->source;
        if (!is_next) continue;
        if (prev != NULL)
            prev->next = in->next;
        else
            box->arriving = in->next;
        if (box->last_arriving == in) box->last_arriving = prev;
        *out = in->mail;
        in->mail.msg = NULL;
        free_incoming(box, in);
        return 1;
    }
    return 0;
}

int64_t strait_mpi_box_next_due(const struct strait_mpi_box *box) {
    return box->waiting != NULL ? box->waiting->due_ns : INT64_MAX;
}

int strait_mpi_box_is_busy(const struct strait_mpi_box *box) {
    return box->sending != NULL || box->arriving != NULL;
}

static int reaches_someone(const struct strait_mpi_outgoing *o) {
    for (; o != NULL; o = o->next)
        if (strait_mpi_check((int)(o->to >> 32)) == STRAIT_OK) return 1;
    return 0;
}

int strait_mpi_box_is_sending(const struct strait_mpi_box *box) {
    return box->broken == STRAIT_OK &&
           (reaches_someone(box->sending) || reaches_someone(box->waiting));
}

/* ---- memory ---- */

strait_err strait_mpi_box_reserve(struct strait_mpi_box *box, int n) {
    for (int i = 0; i < n; i++) {
        struct strait_mpi_outgoing *o = NULL;
        struct strait_mpi_incoming *in = NULL;
        STRAIT_TRY(strait_alloc(1, sizeof *o, "MPI message", (void **)&o));
        free_outgoing(box, o);
        STRAIT_TRY(strait_alloc(1, sizeof *in, "MPI message", (void **)&in));
        free_incoming(box, in);
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
        strait_msg_close(&in->mail.msg);
        strait_frame_reader_fini(&in->reader);
        strait_alloc_free(in);
    }
}

void strait_mpi_box_fini(struct strait_mpi_box *box) {
    if (box->is_listening) box->mpi->cancel(&box->head_request);
    pthread_mutex_lock(&rest.mutex);
    while (box->sending != NULL) {
        struct strait_mpi_outgoing *o = box->sending;
        box->sending = o->next;
        o->next = rest.sending;
        rest.sending = o;
    }
    while (box->arriving != NULL) {
        struct strait_mpi_incoming *in = box->arriving;
        box->arriving = in->next;
        in->next = in->is_begun ? rest.receiving : box->spare_in;
        *(in->is_begun ? &rest.receiving : &box->spare_in) = in;
    }
    pthread_mutex_unlock(&rest.mutex);
    free_all_outgoing(&box->waiting);
    free_all_outgoing(&box->spare_out);
    free_all_incoming(&box->spare_in);
}

void strait_mpi_box_free_rest(void) {
    pthread_mutex_lock(&rest.mutex);
    free_all_outgoing(&rest.sending);
    free_all_incoming(&rest.receiving);
    pthread_mutex_unlock(&rest.mutex);
}
