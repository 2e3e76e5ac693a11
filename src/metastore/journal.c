/* journal.c - the journal backend: entries in an append-only file of this machine. The process that
 * holds the lock of the file leads. */
#include "metastore/journal_file.h"
#include "metastore/metastore_ops.h"
#include "net/core/identity.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    POLL_MS = 20 // while another process leads: flock cannot be waited for with a timeout
};

static strait_err init(struct strait_metastore *store, const char *where) {
    return strait_journal_file_init(store->state, where);
}

static void fini(struct strait_metastore *store) {
    strait_journal_file_fini(store->state);
}

/* Folders are copied and renamed; the name inside tells whose journal it is. */
static strait_err check_run(const struct strait_metastore *store,
                            const struct strait_journal_file *j,
                            const struct strait_journal_contents *contents) {
    if (contents->run[0] == 0 || strcmp(contents->run, store->config.run) == 0) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EDATA,
                       "%s: this is the journal of run '%s', expected '%s'; use another folder",
                       j->path, contents->run, store->config.run);
}

/* ---- leading ---- */

/* Creates the journal, in the first term. */
static strait_err begin_new(struct strait_metastore *store) {
    struct strait_journal_file *j = store->state;
    j->contents.term = 1;
    (void)snprintf(j->contents.run, sizeof j->contents.run, "%s", store->config.run);
    (void)snprintf(j->contents.owner, sizeof j->contents.owner, "%s", store->config.owner);
    STRAIT_TRY(strait_identity_random(&j->contents.salt, sizeof j->contents.salt));
    return strait_journal_file_rewrite(j);
}

/* Reads an existing journal and appends a new term. */
static strait_err begin_term(struct strait_metastore *store) {
    struct strait_journal_file *j = store->state;
    STRAIT_TRY(strait_journal_file_load(j));
    STRAIT_TRY(check_run(store, j, &j->contents));
    const uint64_t term = j->contents.term + 1;
    STRAIT_TRY(strait_journal_file_append(
        j, strait_journal_term_pack(&j->contents, term, store->config.owner, j->buffer)));
    j->contents.term = term;
    (void)snprintf(j->contents.owner, sizeof j->contents.owner, "%s", store->config.owner);
    return STRAIT_OK;
}

static strait_err claim(struct strait_metastore *store) {
    struct strait_journal_file *j = store->state;
    STRAIT_TRY(strait_journal_file_lock(j));
    const strait_err err = strait_file_exists(j->path) ? begin_term(store) : begin_new(store);
    if (err == STRAIT_OK)
        store->term = j->contents.term;
    else
        strait_journal_file_release(j);
    return err;
}

/* The lock cannot expire, but the lock file may have been deleted and created anew by another. */
static strait_err renew(struct strait_metastore *store) {
    struct strait_journal_file *j = store->state;
    if (strait_journal_file_has_lock(j)) return STRAIT_OK;
    strait_journal_file_release(j);
    return strait_metastore_fail_deposed(store);
}

static strait_err resign(struct strait_metastore *store) {
    strait_journal_file_release(store->state);
    return STRAIT_OK;
}

/* Removes the files under the lock. A process that waits for the lock then finds that the path
 * names another file and tries again. */
static void discard(struct strait_metastore *store) {
    const struct strait_journal_file *j = store->state;
    if (j->contents.entries.n_rows > 0 || !strait_journal_file_has_lock(j)) return;
    (void)unlink(j->path);
    (void)unlink(j->lock_path);
}

/* The kernel holds the lock for as long as the process lives, so the lease never expires. */
static int64_t lease_left_ms(const struct strait_metastore *store) {
    return store->config.ttl_ms;
}

static strait_err who(struct strait_metastore *store, strait_metastore_leader *out) {
    struct strait_journal_file *j = store->state;
    struct strait_journal_contents contents = {.term = 0};
    int is_locked = 0;
    STRAIT_TRY(strait_journal_file_is_locked(j, &is_locked));
    *out = (strait_metastore_leader){.term = 0};
    if (!is_locked) return STRAIT_OK;
    const strait_err err = strait_journal_file_read(j, &contents);
    if (err == STRAIT_OK) {
        out->term = contents.term;
        memcpy(out->owner, contents.owner, sizeof out->owner);
    }
    strait_journal_contents_fini(&contents);
    return err;
}

static void pause_ms(int ms) {
    const struct timespec rest = {ms / 1000, (long)(ms % 1000) * 1000000};
    (void)nanosleep(&rest, NULL);
}

static strait_err await(struct strait_metastore *store, int wait_ms) {
    strait_metastore_leader first, now;
    STRAIT_TRY(who(store, &first));
    now = first;
    for (int waited = 0; now.term != 0 && now.term == first.term; waited += POLL_MS) {
        if (waited >= wait_ms)
            return STRAIT_FAIL(STRAIT_ETIMEDOUT, "run '%s' is still led by '%s' after %d ms",
                               store->config.run, first.owner, wait_ms);
        pause_ms(POLL_MS);
        STRAIT_TRY(who(store, &now));
    }
    return STRAIT_OK;
}

/* ---- entries ---- */

/* The version is part of the record, so it is set before packing. */
static strait_err append_entries(struct strait_journal_file *j,
                                 struct strait_metastore_batch *batch, uint64_t version) {
    for (int i = 0; i < batch->n_rows; i++)
        batch->rows[i]->entry.version = version;
    return strait_journal_file_append(
        j, strait_journal_entries_pack(&j->contents, batch->rows, batch->n_rows, j->buffer));
}

/* The order matters: all memory is allocated before the record is appended, so that after the
 * append nothing can fail and the table equals the file. */
static strait_err commit(struct strait_metastore *store, const strait_metastore_change *changes,
                         int n_changes, uint64_t *out_version) {
    struct strait_journal_file *j = store->state;
    struct strait_metastore_batch batch = {.n_rows = 0};
    STRAIT_TRY(renew(store));
    STRAIT_TRY(strait_metastore_table_check(&j->contents.entries, changes, n_changes));
    STRAIT_TRY(strait_journal_file_rewrite_if_needed(j));
    strait_err err = STRAIT_OK;
    for (int i = 0; i < n_changes && err == STRAIT_OK; i++)
        err = strait_metastore_table_prepare(&j->contents.entries, &batch, &changes[i]);
    const uint64_t version = j->contents.version + 1;
    if (err == STRAIT_OK) err = append_entries(j, &batch, version);
    if (err == STRAIT_OK) {
        strait_metastore_table_apply(&j->contents.entries, &batch, version);
        j->contents.version = version;
        *out_version = version;
    }
    strait_metastore_batch_fini(&batch);
    return err;
}

static strait_err read_entries(struct strait_metastore *store, const char *prefix,
                               strait_metastore_visit *visit, void *user) {
    struct strait_journal_file *j = store->state;
    if (store->term != 0)
        return strait_metastore_table_read(&j->contents.entries, prefix, visit, user);
    /* Without the lock the file may be changing: parse a copy of it. */
    struct strait_journal_contents contents = {.term = 0};
    strait_err err = strait_journal_file_read(j, &contents);
    if (err == STRAIT_OK) err = check_run(store, j, &contents);
    if (err == STRAIT_OK) err = strait_metastore_table_read(&contents.entries, prefix, visit, user);
    strait_journal_contents_fini(&contents);
    return err;
}

const struct strait_metastore_ops strait_metastore_journal = {
    .scheme = "journal",
    .state_size = sizeof(struct strait_journal_file),
    .init = init,
    .fini = fini,
    .claim = claim,
    .renew = renew,
    .resign = resign,
    .discard = discard,
    .lease_left_ms = lease_left_ms,
    .await = await,
    .who = who,
    .commit = commit,
    .read = read_entries,
};
