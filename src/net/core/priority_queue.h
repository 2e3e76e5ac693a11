/* priority_queue.h - messages that wait to be sent: most urgent first, in order within a priority.
 *
 * A zeroed queue is empty. Not locked: the owner serialises access. */
#pragma once

#include "net/core/msg.h"

struct strait_priority_queue {
    struct strait_msg *first[STRAIT_N_PRIORITIES], *last[STRAIT_N_PRIORITIES];
    size_t bytes[STRAIT_N_PRIORITIES]; // of bodies, per priority
    size_t n_messages;
    size_t n_bytes; // of bodies, all priorities
};

/* Appends *msg to its priority and clears it: the queue owns it. */
void strait_priority_queue_push(struct strait_priority_queue *queue, struct strait_msg **msg);
/* Puts back a message that was popped and could not be sent. Takes *msg likewise. */
void strait_priority_queue_push_front(struct strait_priority_queue *queue, struct strait_msg **msg);
/* Removes the most urgent message, which then belongs to the caller; NULL when the queue is empty.
 */
struct strait_msg *strait_priority_queue_pop(struct strait_priority_queue *queue);
/* Closes all messages. */
void strait_priority_queue_clear(struct strait_priority_queue *queue);

/* Whether more than `limit` bytes wait, or more than the allowed number of messages divided by
 * `divisor`. Messages without a body take memory too, so their number is bounded as well. */
int strait_priority_queue_is_over(const struct strait_priority_queue *queue, size_t limit,
                                  int divisor);

/* Whether queueing `msg` would put more than `limit` bytes of its own or a more urgent priority in
 * the queue. Less urgent messages do not count, so that they cannot block an urgent one; and a
 * message of any size fits when none is ahead of it, so that large ones cannot starve. */
int strait_priority_queue_is_full(const struct strait_priority_queue *queue,
                                  const struct strait_msg *msg, size_t limit);
