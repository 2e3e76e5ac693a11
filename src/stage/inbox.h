/* inbox.h - the crossings that have arrived at one side of a boundary and were not used yet: those
 * of training steps by microbatch, those of a validation in a queue. They may arrive early, and
 * also for the next step when the neighbour is ahead. Used by one thread, that of its boundary. */
#pragma once

#include "net/core/msg.h"

enum {
    /* Messages of the current step and the next are stored: a neighbour cannot be further ahead,
     * because no stage finishes a step without our messages of that step. */
    STRAIT_INBOX_STEPS = 2
};

struct strait_inbox { // zeroed is closed
    int n_microbatches;
    int64_t n_valid_max; // most messages of a validation that may be queued
    int64_t step;
    /* Rings over steps, indexed by step % STRAIT_INBOX_STEPS, with one entry per microbatch. An
     * entry of `arrived` stays set after its message was consumed, so that duplicates are detected.
     */
    struct strait_msg **messages[STRAIT_INBOX_STEPS];
    unsigned char *arrived[STRAIT_INBOX_STEPS];
    const int
        *order; // the microbatches that are awaited, as they are computed; borrowed. NULL: all
    int n_order;
    int n_leading[STRAIT_INBOX_STEPS]; // of them, arrived without a gap; a ring as above
    struct strait_msg *first, *last;   // queue of validation messages
    int64_t n_queued;                  // length of that queue
};

/* Allocates the rings; after an error call fini. */
strait_err strait_inbox_init(struct strait_inbox *inbox, int n_microbatches, int64_t n_valid_max);
/* Closes every message still stored. Accepts a zeroed struct. */
void strait_inbox_fini(struct strait_inbox *inbox);

/* Which microbatches of the next steps are awaited, in the order in which they are computed.
 * Borrows the list until the next call; NULL: all, in order. */
void strait_inbox_await(struct strait_inbox *inbox, const int *order, int n);

/* Starts `step`: drops messages of the step before, keeps those that arrived early for this one. */
void strait_inbox_begin(struct strait_inbox *inbox, int64_t step);
/* Drops every message; `step` is next. */
void strait_inbox_reset(struct strait_inbox *inbox, int64_t step);

/* Stores a crossing of a step, or one of a validation, and returns 1. Returns 0 for a message that
 * is not expected: another step, a duplicate, or more of a validation than there are. The caller
 * keeps that one. */
int strait_inbox_store(struct strait_inbox *inbox, struct strait_msg *msg);
int strait_inbox_store_valid(struct strait_inbox *inbox, struct strait_msg *msg);

/* How many microbatches of the current step (0) or the next (1) have arrived without a gap. */
int strait_inbox_leading(const struct strait_inbox *inbox, int ahead);

/* Removes a microbatch of the current step or the next, which must have arrived; the caller closes
 * it. */
struct strait_msg *strait_inbox_take(struct strait_inbox *inbox, int64_t step, int64_t microbatch);
/* Removes the oldest message of a validation, which must exist; the caller closes it. */
struct strait_msg *strait_inbox_take_valid(struct strait_inbox *inbox);
