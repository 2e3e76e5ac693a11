/* folder.c - the run's folder belongs to the coordinator that leads (base/folder_lock.h). */
#include "swarm/host/state.h"

strait_err strait_host_take_folder(struct host *h) {
    STRAIT_TRY(strait_folder_lock_take(&h->lock, h->spec->folder,
                                       strait_metastore_term(h->persistence.metastore)));
    if (h->lock.fd == 0) // its process still holds the lock file
        strait_host_note(h, "took over %s from a coordinator that hangs", h->spec->folder);
    return STRAIT_OK;
}

strait_err strait_host_check_folder(struct host *h) {
    const strait_err err = strait_folder_lock_check(&h->lock);
    if (err != STRAIT_OK) strait_host_fail(h, err);
    return err;
}

strait_err strait_host_keep_folder(struct host *h) {
    if (h->lock.folder[0] == '\0') return STRAIT_OK; // not taken yet
    return strait_folder_lock_renew(&h->lock, strait_metastore_term(h->persistence.metastore));
}

void strait_host_leave_folder(struct host *h) {
    if (strait_session_check_folder(h->spec->folder, 0) == STRAIT_OK) { // the run never began
        if (!h->is_open && !h->persistence.was_begun) strait_host_discard_run_id(h);
        strait_folder_lock_discard(&h->lock);
    }
    strait_folder_lock_release(&h->lock);
}
