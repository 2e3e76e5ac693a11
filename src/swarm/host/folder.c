/* folder.c - the run's folder: it belongs to the coordinator that leads (base/folder_lock.h), and
 * holds the id by which an etcd cluster tells runs of one name apart.
 *
 * The id is random and in the folder (swarm.id), because all coordinators of a run have the folder
 * in common, and need the id before they can read anything else of the run. */
#include "base/alloc.h"
#include "base/file.h"
#include "swarm/host/state.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    ID_BYTES = 8,
    ID_TEXT = 2 * ID_BYTES // hexadecimal digits
};

static strait_err id_path(const struct host *h, char out[STRAIT_PATH_MAX]) {
    return strait_file_path(out, "%s/swarm.id", h->spec->folder);
}

/* Creates the file with its content at once: a reader finds none, or the whole id. Of two processes
 * that create it at once, one succeeds; both read what it wrote. */
static strait_err create(const char *path) {
    unsigned char bytes[ID_BYTES];
    char text[ID_TEXT + 2], beside[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_identity_random(bytes, sizeof bytes));
    for (int i = 0; i < ID_BYTES; i++)
        (void)snprintf(text + (size_t)i * 2, 3, "%02x", bytes[i]);
    STRAIT_TRY(strait_file_path(beside, "%s.%s.tmp", path, text));
    text[ID_TEXT] = '\n';
    strait_err err = strait_file_write(beside, text, ID_TEXT + 1);
    if (err == STRAIT_OK && link(beside, path) != 0 && !strait_file_exists(path))
        err = STRAIT_FAIL(STRAIT_EIO, "%s: cannot create", path);
    (void)unlink(beside);
    return err == STRAIT_OK ? strait_file_sync_parent(path) : err;
}

static strait_err read_id(const char *path, char out[STRAIT_HOST_RUN_ID]) {
    char *text = NULL;
    size_t bytes = 0;
    STRAIT_TRY(strait_file_read(path, ID_TEXT + 1, &text, &bytes));
    const int is_good = bytes == ID_TEXT + 1 && strspn(text, "0123456789abcdef") == ID_TEXT;
    if (is_good) (void)snprintf(out, STRAIT_HOST_RUN_ID, "-%.*s", ID_TEXT, text);
    strait_alloc_free(text);
    if (is_good) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EDATA, "%s: expected %d hexadecimal digits and a line feed", path,
                       ID_TEXT);
}

strait_err strait_host_open_run_id(struct host *h, char out[STRAIT_HOST_RUN_ID]) {
    char path[STRAIT_PATH_MAX];
    const char *store = h->spec->store != NULL ? h->spec->store : "";
    out[0] = '\0';
    if (strncmp(store, "etcd:", 5) != 0) return STRAIT_OK; // a journal is the folder's own
    STRAIT_TRY(id_path(h, path));
    if (strait_file_exists(path)) return read_id(path, out);
    /* A run that an earlier version began is known by its name alone. */
    if (strait_session_check_folder(h->spec->folder, 0) != STRAIT_OK) return STRAIT_OK;
    STRAIT_TRY(create(path));
    h->persistence.is_id_new = 1;
    return read_id(path, out);
}

/* A standby that never led leaves the id alone: the leader may have created it. */
void strait_host_discard_run_id(struct host *h) {
    char path[STRAIT_PATH_MAX];
    const int has_led = h->lock.folder[0] != '\0';
    if (!has_led && !h->persistence.is_id_new) return;
    if (id_path(h, path) == STRAIT_OK) (void)unlink(path);
}

/* ---- who owns the folder ---- */

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
