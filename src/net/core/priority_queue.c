#include "net/core/priority_queue.h"

enum {
    MESSAGES_MAX = 65536 // messages without a body fill no queue
};

static void count_in(struct strait_priority_queue *lanes, const struct strait_msg *msg) {
    lanes->n_messages++;
    lanes->n_bytes += msg->size;
    lanes->bytes[msg->priority] += msg->size;
}

void strait_priority_queue_push(struct strait_priority_queue *lanes, struct strait_msg **msg) {
    struct strait_msg *m = *msg;
    const int p = m->priority;
    *msg = NULL;
    m->next = NULL;
    if (lanes->last[p] != NULL)
        lanes->last[p]->next = m;
    else
        lanes->first[p] = m;
    lanes->last[p] = m;
    count_in(lanes, m);
}

void strait_priority_queue_push_front(struct strait_priority_queue *lanes,
                                      struct strait_msg **msg) {
    struct strait_msg *m = *msg;
    const int p = m->priority;
    *msg = NULL;
    m->next = lanes->first[p];
    lanes->first[p] = m;
    if (lanes->last[p] == NULL) lanes->last[p] = m;
    count_in(lanes, m);
}

struct strait_msg *strait_priority_queue_pop(struct strait_priority_queue *lanes) {
    for (int p = 0; p < STRAIT_N_PRIORITIES; p++) {
        struct strait_msg *m = lanes->first[p];
        if (m == NULL) continue;
        lanes->first[p] = m->next;
        if (m->next == NULL) lanes->last[p] = NULL;
        m->next = NULL;
        lanes->n_messages--;
        lanes->n_bytes -= m->size;
        lanes->bytes[p] -= m->size;
        return m;
    }
    return NULL;
}

void strait_priority_queue_clear(struct strait_priority_queue *lanes) {
    struct strait_msg *m = NULL;
    while ((m = strait_priority_queue_pop(lanes)) != NULL)
        strait_msg_close(&m);
}

int strait_priority_queue_is_over(const struct strait_priority_queue *lanes, size_t limit,
                                  int share) {
    return lanes->n_bytes > limit || lanes->n_messages > (size_t)(MESSAGES_MAX / share);
}

int strait_priority_queue_is_full(const struct strait_priority_queue *lanes,
                                  const struct strait_msg *msg, size_t limit) {
    size_t ahead = 0;
    for (int p = 0; p <= msg->priority; p++)
        ahead += lanes->bytes[p];
    return lanes->n_messages >= MESSAGES_MAX || (ahead > 0 && ahead + msg->size > limit);
}
