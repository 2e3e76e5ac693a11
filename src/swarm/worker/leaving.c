/* leaving.c - how a worker leaves that has a stage: it goes on serving until another worker has the
 * stage, as long as something happens. */
#include "base/clock.h"
#include "swarm/worker/state.h"

enum {
    LEAVE_MS = 120000 // without a task, a command or a piece of the copy that others wait for
};

void strait_worker_leave_if_asked(struct worker *w) {
    struct strait_msg *msg = NULL;
    if (w->has_left || w->spec->events.must_stop(w->spec->events.user) == 0) return;
    w->has_left = 1;
    w->served_ns = strait_clock_ns();
    strait_worker_note(w, w->has_stage
                              ? "leaving: handing the stage over first (interrupt again to "
                                "leave at once)"
                              : "leaving");
    if (strait_msg_open(strait_mesh_pool(w->control.mesh), STRAIT_MSG_LEAVE, 0, &msg) == STRAIT_OK)
        strait_worker_send(w, &msg);
}

/* A long step, or a copy that a slow link carries, takes its time: what would be lost without the
 * copy took longer. Where nothing happens, no other worker is there to take the stage. */
strait_err strait_worker_check_leaving(const struct worker *w) {
    if (!w->has_left) return STRAIT_OK;
    /* The stage was handed over, or there is no coordinator to hand it over to. */
    if (!w->has_stage || w->control.down_ns != 0)
        return STRAIT_FAIL(STRAIT_EINTERRUPTED, "left the run");
    if (strait_clock_ns() - w->served_ns <= LEAVE_MS * INT64_C(1000000)) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EINTERRUPTED,
                       "left the run: no other worker took the stage over in time");
}
