/* host_save.c - checkpoints of a swarm: stage by stage, from the images that their owners send. */
#include "base/alloc.h"
#include "base/file.h"
#include "swarm/host_state.h"

enum {
    WRITE_MS = 5
};

struct writing {
    struct strait_image image;
    const char *folder;
    int64_t step;
};

static strait_err write_image(void *arg) {
    const struct writing *w = arg;
    return strait_image_write(&w->image, w->folder, w->step);
}

static strait_err pump(struct host *h) {
    return strait_host_pump(h, WRITE_MS);
}

static strait_err write_stage(struct strait_crew *crew, int stage, const char *folder,
                              int64_t step) {
    static _Thread_local strait_order order;
    struct host *h = crew->user;
    order = (strait_order){.kind = STRAIT_ORDER_SAVE, .step = step};
    STRAIT_TRY(strait_host_carry(crew, stage, &order));
    struct guest *guest = strait_host_guest(h, h->machine.owner[stage]);
    if (guest == NULL) return STRAIT_EAGAIN;
    struct writing w = {.image = guest->image, .folder = folder, .step = step};
    guest->image = (struct strait_image){0}; // the guest may go before it is written
    w.image.stage = stage;
    strait_err err = strait_image_match(&w.image, &crew->recipe);
    if (err == STRAIT_OK) err = strait_image_check(&w.image);
    if (err == STRAIT_ENONFINITE || err == STRAIT_EDATA || err == STRAIT_EPROTO) {
        strait_host_note(h, "%s", strait_err_detail());
        strait_host_tell(
            h, &(strait_swarm_event){.kind = STRAIT_SWARM_BLAME, .node = h->machine.owner[stage]});
        err = STRAIT_EAGAIN;
    }
    if (err == STRAIT_OK) err = strait_host_beside(h, write_image, &w, pump);
    strait_image_fini(&w.image);
    return err;
}

strait_err strait_host_write(struct strait_crew *crew, const char *folder, int64_t step) {
    struct host *h = crew->user;
    for (int i = 0; i < crew->recipe.n_stages;) {
        STRAIT_TRY(strait_host_bring_to(crew, step));
        const strait_err err = write_stage(crew, i, folder, step);
        if (err != STRAIT_OK && err != STRAIT_EAGAIN) return err;
        i = err == STRAIT_OK ? i + 1 : 0;
    }
    h->saved = step;
    return STRAIT_OK;
}

void strait_host_see_checkpoint(struct host *h) {
    char path[STRAIT_PATH_MAX];
    if (h->saved < 0) return;
    if (strait_file_path(path, "%s/checkpoints/%08lld/manifest.json", h->spec->folder,
                         (long long)h->saved) == STRAIT_OK &&
        strait_file_exists(path))
        h->machine.checkpoint = h->saved;
    h->saved = -1;
}

strait_err strait_host_open_checkpoint(struct host *h, struct strait_checkpoint **out) {
    strait_checkpoint_errand o = {.folder = h->spec->folder};
    const strait_err err = strait_host_beside(h, strait_checkpoint_open_whole, &o,
                                              strait_host_hold_on);
    if (err != STRAIT_OK) strait_checkpoint_close(&o.checkpoint);
    *out = o.checkpoint;
    return err;
}

strait_err strait_host_find_checkpoint(struct host *h) {
    struct strait_checkpoint *checkpoint = NULL;
    int64_t *steps = NULL;
    int n = 0;
    STRAIT_TRY(strait_checkpoint_list(h->spec->folder, &steps, &n));
    strait_alloc_free(steps);
    if (n == 0) return STRAIT_OK;
    STRAIT_TRY(strait_host_open_checkpoint(h, &checkpoint));
    h->machine.checkpoint = strait_checkpoint_step(checkpoint);
    if (h->machine.checkpoint > h->machine.committed) h->machine.committed = h->machine.checkpoint;
    strait_checkpoint_close(&checkpoint);
    return STRAIT_OK;
}
