/* reorder.h - puts the messages of a link that has several streams back into order.
 *
 * A message that arrives before its turn, because another stream was faster, waits in a ring of
 * fixed size, so that storing and finding it takes the same time whatever a peer sends. What does
 * not fit stays with its stream, which is not read until it fits (multi_link.c). Net thread only.
 */
#pragma once

#include "net/core/msg.h"

enum {
    STRAIT_REORDER_WINDOW = 256, // messages per priority that may wait, the next one included
    STRAIT_REORDER_MAX = 65536   // how far ahead of its turn a message may be at all
};

/* A zeroed one is empty. */
struct strait_reorder {
    struct strait_msg *ring[STRAIT_N_PRIORITIES][STRAIT_REORDER_WINDOW];
    uint32_t next[STRAIT_N_PRIORITIES]; // sequence number whose turn it is
    size_t n_bytes;                     // of the bodies that wait
};

/* Takes *msg and clears it. STRAIT_EAGAIN, without a text: there is no space for it yet, or more
 * than `limit` bytes wait. STRAIT_EPROTO: its number was used before or is far out of bounds. */
strait_err strait_reorder_put(struct strait_reorder *order, size_t limit, struct strait_msg **msg);
/* Returns the message of a priority whose turn it is, which then belongs to the caller; NULL: it
 * has not arrived. */
struct strait_msg *strait_reorder_take(struct strait_reorder *order, int priority);
/* Closes all messages. */
void strait_reorder_clear(struct strait_reorder *order);
