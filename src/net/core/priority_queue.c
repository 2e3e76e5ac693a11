/* priority_queue.c - one linked list per priority; pop takes the first of the most urgent. */
#include "net/core/priority_queue.h"

enum {
    MESSAGES_MAX = 65536 // bounds the memory of messages without a body
};

/* Bytes are also counted per priority: is_full ignores less urgent messages. */
static void count_in(struct strait_priority_queue *queue, const struct strait_msg *msg) {
    queue->n_messages++;
    queue->n_bytes += msg->size;
    queue->bytes[msg->priority] += msg->size;
}

void strait_priority_queue_push(struct strait_priority_queue *queue, struct strait_msg **msg) {
    struct strait_msg *m = *msg;
    const int p = m->priority;
    *msg = NULL;
    m->next = NULL;
    if (queue->last[p] != NULL)
        queue->last[p]->next = m;
    else
        queue->first[p] = m;
    queue->last[p] = m;
    count_in(queue, m);
}

/* Keeps the place of a message that a full link declined, so that order is preserved. */
void strait_priority_queue_push_front(struct strait_priority_queue *queue,
                                      struct strait_msg **msg) {
    struct strait_msg *m = *msg;
    const int p = m->priority;
    *msg = NULL;
    m->next = queue->first[p];
    queue->first[p] = m;
    if (queue->last[p] == NULL) queue->last[p] = m;
    count_in(queue, m);
}

/* Strictly by priority. Nothing starves, since a step has few messages of each kind. */
struct strait_msg *strait_priority_queue_pop(struct strait_priority_queue *queue) {
    for (int p = 0; p < STRAIT_N_PRIORITIES; p++) {
        struct strait_msg *m = queue->first[p];
        if (m == NULL) continue;
        queue->first[p] = m->next;
        if (m->next == NULL) queue->last[p] = NULL;
        m->next = NULL;
        queue->n_messages--;
        queue->n_bytes -= m->size;
        queue->bytes[p] -= m->size;
        return m;
    }
    return NULL;
}

void strait_priority_queue_clear(struct strait_priority_queue *queue) {
    struct strait_msg *m = NULL;
    while ((m = strait_priority_queue_pop(queue)) != NULL)
        strait_msg_close(&m);
}

int strait_priority_queue_is_over(const struct strait_priority_queue *queue, size_t limit,
                                  int divisor) {
    return queue->n_bytes > limit || queue->n_messages > (size_t)(MESSAGES_MAX / divisor);
}

int strait_priority_queue_is_full(const struct strait_priority_queue *queue,
                                  const struct strait_msg *msg, size_t limit) {
    size_t ahead = 0; // bytes that would be sent before `msg`
    for (int p = 0; p <= msg->priority; p++)
        ahead += queue->bytes[p];
    return queue->n_messages >= MESSAGES_MAX || (ahead > 0 && ahead + msg->size > limit);
}
