/* session.c - the session of a hosted run. */
#include "swarm/host/checkpoint/first.h"
#include "swarm/host/state.h"

/* An executor passes STRAIT_EAGAIN on only when an audit has found that earlier steps are wrong.
 * What follows is then what a restart does: the session begins at the step that is restored, and
 * cuts its metrics there. */
strait_err strait_host_run_session(struct host *h) {
    strait_session_spec session = {
        .run = &h->run,
        .folder = h->spec->folder,
        .resumes = h->spec->resumes || h->persistence.was_begun || strait_host_has_first(h),
        .is_forced = h->spec->is_forced,
        .waits_for_disk = 1, // a full disk must not end a run that many workers serve
        .events = h->spec->session};
    for (;;) {
        const strait_err err = strait_session_run_with(
            &session, (strait_executor_choice){&strait_swarm_executor, h}, &h->lock);
        if (err != STRAIT_EAGAIN) return err;
        session.resumes = 1;
    }
}
