/* conn_abort.c - closes a conn at once and frees it. */
#include "base/alloc.h"
#include "net/tls/conn_internal.h"

#include <stdio.h>

void strait_conn_set_reason(struct strait_conn *c, strait_err why) {
    if (c->reason[0] != 0) return;
    c->why = why;
    (void)snprintf(c->reason, sizeof c->reason, "%s",
                   why == STRAIT_OK ? "closed by this program" : strait_err_detail());
}

/* libuv has finished with the handle, so nothing points into the conn any more. */
static void on_closed(uv_handle_t *handle) {
    struct strait_conn *c = handle->data;
    if (c->rendezvous != NULL) {
        c->rendezvous->n_waiting--;
        c->rendezvous->n_lost++;
    }
    strait_err_note(__FILE__, __LINE__, "%s", c->reason);
    c->events->closed(c, c->why);
    strait_priority_queue_clear(&c->control);
    strait_msg_close(&c->sending);
    strait_frame_reader_fini(&c->reader);
    strait_delay_line_fini(&c->line);
    strait_tls_close(&c->tls);
    strait_alloc_free(c);
}

/* Closing a handle is asynchronous in libuv, which may still use the conn until on_closed. */
void strait_conn_abort(struct strait_conn *c, strait_err why) {
    if (c->state == STRAIT_CONN_CLOSED) return;
    strait_conn_set_reason(c, why);
    c->state = STRAIT_CONN_CLOSED; // callbacks that libuv still delivers check this
    c->next_pump_ns = c->read_ns = INT64_MAX;
    uv_close((uv_handle_t *)&c->tcp, on_closed);
}
