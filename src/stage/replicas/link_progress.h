/* link_progress.h - tells a slow link from a dead one.
 *
 * A stage that waits for a neighbour gives up when nothing has moved for link.deadline. Bytes of a
 * crossing that is still arriving count, and so does movement further away: with several slow
 * links in a row most stages wait while bytes move elsewhere. So a waiting stage tells each
 * neighbour how long ago something moved on its links or on its other side. What a neighbour said
 * is never told back to it, so no two stages can keep each other waiting. A lost link is noticed by
 * the transport.
 */
#pragma once

#include "config/run.h"
#include "net/mesh/mesh.h"

enum {
    /* Between neighbours, without a body: its field `step` has the milliseconds since something
     * moved at the sender or beyond it. */
    STRAIT_MSG_PROGRESS = STRAIT_MSG_FIRST + 21
};

/* One thread uses it, that of the runner. Zeroed is closed. */
typedef struct strait_link_progress {
    int64_t own_ns;      // when this stage computed, or bytes arrived, last
    int64_t heard_ns[2]; // when something moved at the previous and at the next stage, or beyond
    uint64_t bytes[2];   // received from each so far
    int64_t
        began_ns; // when it computed last: it tells nobody anything before it has waited a while
    int64_t looked_ns, told_ns;
} strait_link_progress;

/* This stage has computed or received something, or begins a step. */
void strait_link_progress_note(strait_link_progress *progress);

/* A message STRAIT_MSG_PROGRESS of the neighbour on `side`: -1 previous, 1 next. */
void strait_link_progress_hear(strait_link_progress *progress, int side,
                               const struct strait_msg *msg);

/* The replicas of the previous and of the next stage, as peers of the mesh. */
typedef struct strait_link_peers {
    int n[2];
    int items[2][STRAIT_RUN_REPLICAS];
} strait_link_peers;

/* Looks at the links, tells the neighbours, and returns the milliseconds since something moved.
 * Call it often while waiting. */
int64_t strait_link_progress_check(strait_link_progress *progress, struct strait_mesh *mesh,
                                   const strait_link_peers *peers, int deadline_ms);
