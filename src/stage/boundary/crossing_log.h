/* crossing_log.h - the crossings that one side of a boundary has sent, for neighbours that compute
 * steps again.
 *
 * A stage that was replaced restores an older snapshot and recomputes the steps since. What its
 * neighbours sent it in those steps is here, as the bytes that went over the wire: compressed
 * crossings are small, so many steps fit. The log is a ring over steps of a fixed size: beginning a
 * step drops the one that was there before. All memory is allocated when the log opens. A log is
 * used by one thread, that of its boundary. */
#pragma once

#include "base/digest/sha256.h"

#include <stddef.h>
#include <stdint.h>

enum {
    STRAIT_CROSSING_STEPS_MAX = 128 // a log holds no more, however small its crossings are
};

struct strait_crossing_log;

typedef struct strait_crossing_log_spec {
    size_t message_bytes; // of one crossing
    int n_microbatches;   // per step
    size_t bytes_max;     // of all kept crossings
} strait_crossing_log_spec;

/* The kept bytes of one microbatch. */
typedef struct strait_crossing_view {
    const unsigned char *data; // borrowed until the next begin; NULL: not kept
    size_t bytes;
    uint16_t basis; // version of the codec's basis that encoded it
} strait_crossing_view;

/* How many steps a log of this spec holds; 0: not even one fits. */
int strait_crossing_log_steps(const strait_crossing_log_spec *spec);

/* Bytes that a log of this spec allocates for crossings. */
size_t strait_crossing_log_bytes(const strait_crossing_log_spec *spec);

/* Allocates a log of at least one step. STRAIT_EINVAL when not even one fits. */
strait_err strait_crossing_log_open(const strait_crossing_log_spec *spec,
                                    struct strait_crossing_log **out);
void strait_crossing_log_close(struct strait_crossing_log **log); // accepts NULL

/* Begins `step`: forgets what was kept of it, of later steps, and of the step whose place it takes.
 */
void strait_crossing_log_begin(struct strait_crossing_log *log, int64_t step);

/* Keeps a crossing of the step begun last; another step is ignored. `data` has message_bytes. */
void strait_crossing_log_put(struct strait_crossing_log *log, int64_t step, int microbatch,
                             uint16_t basis, const void *data);

/* Forgets all steps. */
void strait_crossing_log_clear(struct strait_crossing_log *log);

/* What was kept of a microbatch. */
strait_crossing_view strait_crossing_log_find(const struct strait_crossing_log *log, int64_t step,
                                              int microbatch);

/* Whether the step was begun and is still there, complete or not: a replica sends some of its
 * microbatches. */
int strait_crossing_log_holds(const struct strait_crossing_log *log, int64_t step);

/* Whether every microbatch of the step was kept. */
int strait_crossing_log_has(const struct strait_crossing_log *log, int64_t step);

/* The smallest step s such that all steps from s to `until` - 1 are complete; `until`: not even the
 * last of them is. */
int64_t strait_crossing_log_first(const struct strait_crossing_log *log, int64_t until);

/* The digest of a complete step: of its crossings in the order of microbatches. STRAIT_EPROTO: the
 * step is not complete. */
strait_err strait_crossing_log_hash(const struct strait_crossing_log *log, int64_t step,
                                    strait_digest *out);
