#include "net/envelope/arrivals.h"

void strait_arrivals_push(struct strait_arrivals *arrivals, struct strait_msg **msg,
                          int64_t passed_ns) {
    struct strait_msg *m = *msg;
    m->queued_ns = passed_ns;
    m->next = NULL;
    *(arrivals->first != NULL ? &arrivals->last->next : &arrivals->first) = m;
    arrivals->last = m;
    *msg = NULL;
}

struct strait_msg *strait_arrivals_pop(struct strait_arrivals *arrivals, int64_t now_ns) {
    struct strait_msg *msg = arrivals->first;
    if (msg == NULL || msg->queued_ns > now_ns) return NULL;
    arrivals->first = msg->next;
    return msg;
}

int64_t strait_arrivals_next_ns(const struct strait_arrivals *arrivals) {
    return arrivals->first != NULL ? arrivals->first->queued_ns : INT64_MAX;
}

void strait_arrivals_clear(struct strait_arrivals *arrivals) {
    for (struct strait_msg *msg; (msg = strait_arrivals_pop(arrivals, INT64_MAX)) != NULL;)
        strait_msg_close(&msg);
}
