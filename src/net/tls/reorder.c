#include "net/tls/reorder.h"

static struct strait_msg **slot(struct strait_reorder *order, int priority, uint32_t sequence) {
    return &order->ring[priority][sequence % STRAIT_REORDER_WINDOW];
}

/* The subtraction of sequence numbers is modulo 2^32, so it stays right when they wrap; a number
 * that was used before is then far ahead. */
strait_err strait_reorder_put(struct strait_reorder *order, size_t limit, struct strait_msg **msg) {
    const int p = (*msg)->priority;
    const uint32_t ahead = (*msg)->sequence - order->next[p];
    struct strait_msg **at = slot(order, p, (*msg)->sequence);
    if (ahead > STRAIT_REORDER_MAX || (ahead < STRAIT_REORDER_WINDOW && *at != NULL))
        return STRAIT_FAIL(STRAIT_EPROTO,
                           "frame with sequence number %u of priority %d, expected %u",
                           (*msg)->sequence, p, order->next[p]);
    /* The message whose turn it is always fits: without it no other could be delivered. */
    if (ahead >= STRAIT_REORDER_WINDOW || (ahead > 0 && order->n_bytes > limit))
        return STRAIT_EAGAIN;
    order->n_bytes += (*msg)->size;
    *at = *msg;
    *msg = NULL;
    return STRAIT_OK;
}

struct strait_msg *strait_reorder_take(struct strait_reorder *order, int priority) {
    struct strait_msg **at = slot(order, priority, order->next[priority]);
    struct strait_msg *msg = *at;
    if (msg == NULL) return NULL;
    *at = NULL;
    order->n_bytes -= msg->size;
    order->next[priority]++;
    return msg;
}

void strait_reorder_clear(struct strait_reorder *order) {
    for (int p = 0; p < STRAIT_N_PRIORITIES; p++)
        for (int i = 0; i < STRAIT_REORDER_WINDOW; i++)
            strait_msg_close(&order->ring[p][i]);
    order->n_bytes = 0;
}
