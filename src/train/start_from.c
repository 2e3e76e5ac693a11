#include "train/start_from.h"

#include "base/alloc.h"
#include "base/file.h"
#include "config/description.h"
#include "convert/init.h"
#include "stage/runner_state.h"
#include "train/freeze_check.h"

#include <stdio.h>

/* Takes what fits from the source, and removes the initial values that were written before. */
static strait_err replace(strait_err err, const char *initial, const char *source,
                          const char *folder, const strait_convert_notes *notes) {
    if (err == STRAIT_OK) err = strait_init_write(initial, source, folder, notes);
    strait_init_discard(initial);
    return err;
}

strait_err strait_start_from(struct strait_trainer *trainer, const char *source, const char *folder,
                             strait_convert_note note, void *user) {
    char initial[STRAIT_PATH_MAX];
    const strait_convert_notes notes = {.note = note, .user = user};
    const char *skipped = NULL;
    STRAIT_TRY(strait_file_path(initial, "%s/initial.tmp", folder));
    STRAIT_TRY(replace(strait_trainer_save(trainer, initial), initial, source, folder, &notes));
    return strait_trainer_load(trainer, folder, &skipped);
}

/* ---- without a trainer ---- */

struct start {
    strait_run run; // on the CPU, with one replica of each stage
    strait_run_plan plan;
    struct strait_loader *loader;
    strait_description description;
};

/* The device is not that of the workers: initial values do not depend on it. */
static strait_err open_start(struct start *s, const strait_run *run) {
    s->run = *run;
    (void)snprintf(s->run.device.kind, sizeof s->run.device.kind, "cpu");
    s->run.device.ordinal = (strait_option_ints){.n = 1};
    s->run.stages.replicas = (strait_option_ints){.items = {1}, .n = 1};
    STRAIT_TRY(strait_loader_open(&s->run, &s->loader));
    STRAIT_TRY(strait_run_plan_init(&s->run, strait_loader_vocab(s->loader), &s->plan));
    STRAIT_TRY(strait_loader_configure(s->loader, &s->plan));
    return strait_freeze_check(&s->plan);
}

static strait_err draw_stage(struct start *s, int stage, const char *initial) {
    struct strait_runner *runner = NULL;
    const strait_runner_place place = {.stage = stage, .n_slots = 1};
    STRAIT_TRY(strait_runner_open(&s->run, &s->plan, &place, s->loader, &runner));
    strait_err err = strait_runner_init_weights(runner, (uint64_t)s->run.train.seed);
    if (err == STRAIT_OK) err = strait_runner_state_write(runner, initial, 0, 0);
    strait_runner_close(&runner);
    return err;
}

static strait_err save_initial(struct start *s, const char *initial) {
    strait_checkpoint_stage_file files[2 * STRAIT_RUN_STAGES];
    int n = 0;
    STRAIT_TRY(strait_checkpoint_begin(initial, 0));
    for (int i = 0; i < s->plan.n_stages; i++) {
        STRAIT_TRY(draw_stage(s, i, initial));
        files[n++] = (strait_checkpoint_stage_file){.stage = i};
        files[n++] = (strait_checkpoint_stage_file){.stage = i, .is_state = 1};
    }
    strait_describe(&s->plan, &s->description);
    const strait_checkpoint_plan plan = {.tokenizer = strait_loader_tokenizer(s->loader),
                                         .model = s->description.pairs,
                                         .n_model = s->description.n,
                                         .files = files,
                                         .n_files = n,
                                         .keep = 1};
    return strait_checkpoint_commit(initial, &plan);
}

strait_err strait_start_write(const strait_run *run, const char *folder, strait_convert_note note,
                              void *user) {
    char initial[STRAIT_PATH_MAX];
    const strait_convert_notes notes = {.note = note, .user = user};
    struct start *s = NULL;
    STRAIT_TRY(strait_file_path(initial, "%s/initial.tmp", folder));
    STRAIT_TRY(strait_alloc(1, sizeof *s, "start of a run", (void **)&s));
    strait_err err = open_start(s, run);
    if (err == STRAIT_OK)
        err = replace(save_initial(s, initial), initial, run->train.init_from, folder, &notes);
    strait_loader_close(&s->loader);
    strait_alloc_free(s);
    return err;
}
