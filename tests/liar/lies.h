/* lies.h - what a liar does to the messages it sends.
 *
 * The rules come from the command line, before the command of the program itself:
 *
 *   --lie FIELD=VALUE    puts VALUE (values.h) into a field (messages.h)
 *   --drop MESSAGE       does not send it: "reply", "reply.gradients"
 *   --duplicate MESSAGE  sends it twice
 *   --delay MESSAGE=MS   holds it, and all behind it, for MS milliseconds
 *   --short MESSAGE      cuts its last byte off
 *   --long MESSAGE       appends a zero byte
 *   --zero MESSAGE       clears the bytes behind its fields, which of a snapshot are its values
 *   --flip MESSAGE       flips one bit of its last byte
 *   --fill MESSAGE       sets all bits of the bytes behind its fields: as floats they are NaN
 *   --from-step N        the rule above applies from training step N on (default: from the start)
 *   --times N            it applies to N messages (default: to all)
 *   --again 1            it applies to crossings of steps that were sent before
 *   --seed N             of random values
 *
 * The first messages that each rule changes are reported on standard error. */
#pragma once

#include "net/core/msg.h"

/* Takes the rules off the front of the arguments; returns the number of arguments taken, or -1
 * after printing what is wrong. */
int lies_parse(int argc, char **argv);

/* What becomes of one message. */
struct verdict {
    struct strait_msg *changed; // to be sent instead; NULL: the message itself. The caller's
    int is_dropped, is_doubled;
    int delay_ms;
    uint64_t rules; // bit i: rule i was applied
};

/* Applies the rules to a message that is about to be sent. Safe to call from any thread. */
void lies_apply(struct strait_msg *msg, struct verdict *out);

/* The link did not accept the message: the rules will be applied when it is sent again. */
void lies_undo(const struct verdict *verdict);
