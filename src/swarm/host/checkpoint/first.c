#include "swarm/host/checkpoint/first.h"

#include "base/alloc.h"
#include "base/file.h"
#include "config/description.h"
#include "train/start_from.h"

#include <stdio.h>
#include <unistd.h>

/* ---- writing it ---- */

/* Runs in another thread, so the note is said when it has ended. */
struct making {
    struct host *host;
    char note[1024];
};

static void keep_note(void *user, const char *text) {
    struct making *making = user;
    (void)snprintf(making->note, sizeof making->note, "%s", text);
}

static strait_err write_first(void *arg) {
    struct making *making = arg;
    return strait_start_write(&making->host->run, making->host->spec->folder, keep_note, making);
}

/* After an error the folder is as if the run had never begun, unless it holds a checkpoint. */
static strait_err make(struct host *h) {
    struct making making = {.host = h};
    char checkpoints[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_file_path(checkpoints, "%s/checkpoints", h->spec->folder));
    const strait_err err = strait_host_run_async(h, write_first, &making, strait_host_keep_alive);
    if (err != STRAIT_OK) (void)rmdir(checkpoints); // fails if it is not empty
    STRAIT_TRY(err);
    if (h->spec->events.noted != NULL)
        h->spec->events.noted(h->spec->events.user, making.note); // longer than strait_host_note's
    return STRAIT_OK;
}

/* ---- one that exists ---- */

static strait_err first_path(const struct host *h, char out[STRAIT_PATH_MAX]) {
    return strait_file_path(out, "%s/checkpoints/%08d", h->spec->folder, 0);
}

int strait_host_has_first(const struct host *h) {
    char path[STRAIT_PATH_MAX];
    return first_path(h, path) == STRAIT_OK && strait_file_exists(path);
}

static strait_err open_first(struct host *h, struct strait_checkpoint **out) {
    char path[STRAIT_PATH_MAX];
    STRAIT_TRY(first_path(h, path));
    return strait_host_open_checkpoint(h, path, out);
}

/* Whether it is of this model and has what workers will ask for: an import has no moments. */
static strait_err check_tensors(const struct strait_checkpoint *first,
                                const strait_run_plan *plan) {
    STRAIT_TRY(strait_describe_check(first, plan, strait_checkpoint_tokenizer(first)));
    for (int i = 0; i < plan->n_stages; i++) {
        struct strait_snapshot list = {0};
        struct strait_snapshot_reader reader = {0};
        strait_err err = strait_snapshot_expected_header(plan, i, &list);
        if (err == STRAIT_OK)
            err = strait_snapshot_reader_init(&reader, first, list.data, list.bytes, SIZE_MAX);
        strait_snapshot_reader_fini(&reader);
        strait_snapshot_fini(&list);
        STRAIT_TRY(err);
    }
    return STRAIT_OK;
}

static strait_err check_first(struct host *h, const strait_run_plan *plan) {
    struct strait_checkpoint *first = NULL;
    STRAIT_TRY(open_first(h, &first));
    const strait_err err = check_tensors(first, plan);
    if (err == STRAIT_EDATA)
        strait_err_prefix("this run cannot continue from step 0 (to begin a new one with its "
                          "weights, set train.init_from and another folder)");
    strait_checkpoint_close(&first);
    return err;
}

strait_err strait_host_make_first(struct host *h, const strait_run_plan *plan) {
    int64_t *steps = NULL;
    int n = 0;
    STRAIT_TRY(strait_checkpoint_list(h->spec->folder, &steps, &n));
    const int has_only_first = n == 1 && steps[0] == 0;
    strait_alloc_free(steps);
    if (has_only_first && !h->persistence.was_begun) return check_first(h, plan);
    return n > 0 || h->run.train.init_from[0] == '\0' ? STRAIT_OK : make(h);
}

/* ---- the split ---- */

static int is_made_for(const strait_run_plan *made, const strait_run *run) {
    int64_t last = 0;
    for (int i = 0; i < run->stages.split.n; i++) {
        last += run->stages.split.items[i];
        if (made->stage_layers[i].last != last) return 0;
    }
    return 1;
}

strait_err strait_host_fit_first(struct host *h, const strait_run_plan *plan) {
    struct strait_checkpoint *first = NULL;
    strait_run_plan made;
    const int is_of_cut = plan->n_stages > 1 &&
                          (strait_codec_traits(&plan->codec) & STRAIT_CODEC_TRAINED) != 0;
    if (h->coordinator.committed > 0 || h->run.train.init_from[0] == '\0' || !is_of_cut ||
        !strait_host_has_first(h))
        return STRAIT_OK;
    STRAIT_TRY(open_first(h, &first));
    const strait_err err = strait_describe_read(first, &made);
    strait_checkpoint_close(&first);
    STRAIT_TRY(err);
    return is_made_for(&made, &h->run) ? STRAIT_OK : make(h);
}

/* ---- giving it to the stages ---- */

void strait_host_announce_first(struct host *h, int is_timed) {
    const int has_first = strait_host_has_first(h);
    if (has_first && is_timed)
        h->coordinator.checkpoint = -1;
    else
        h->coordinator.has_first = has_first || h->run.train.init_from[0] != '\0';
    h->executor->keeps_first = has_first;
}

strait_err strait_host_restore_first(struct host *h) {
    if (h->coordinator.has_first || !strait_host_has_first(h)) return STRAIT_OK;
    strait_host_note(h, "sending the stages their weights of step 0");
    h->coordinator.checkpoint = 0;
    strait_host_feed_coordinator(h, &(strait_swarm_event){.kind = STRAIT_SWARM_FIRST});
    return strait_host_wait_ready(h);
}
