/* arrivals.h - messages on the emulated way into a home, in the order in which they will have
 * passed it. Net thread only. Zeroed: there are none. */
#pragma once

#include "net/core/msg.h"

struct strait_arrivals {
    struct strait_msg *first, *last; // queued_ns of each is when it has passed
};

/* Appends *msg, which passes at `passed_ns`, and clears it. */
void strait_arrivals_push(struct strait_arrivals *arrivals, struct strait_msg **msg,
                          int64_t passed_ns);
/* The next message if it has passed by now, which then belongs to the caller; NULL: there is none.
 */
struct strait_msg *strait_arrivals_pop(struct strait_arrivals *arrivals, int64_t now_ns);
/* When the next message will have passed; INT64_MAX: there is none. */
int64_t strait_arrivals_next_ns(const struct strait_arrivals *arrivals);
/* Closes all of them. */
void strait_arrivals_clear(struct strait_arrivals *arrivals);
