/* choose_record.c - what earlier sessions chose, which a run keeps for good: its codec, the rows of
 * its tables, and on GPUs the size of its microbatches. */
#include <strait/cluster.h>

#include "base/alloc.h"
#include "base/file.h"
#include "codec/strait/rule.h"
#include "config/microbatch.h"
#include "config/run_auto.h"
#include "model/shape.h"
#include "store/checkpoint.h"
#include "train/outlook/choose.h"
#include "train/session/session_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SETS = 64,
    SET_BYTES = STRAIT_OPTION_TEXT_MAX + 64
};

/* Gives the run every option of link.codec that the record has. */
static strait_err copy_codec(const strait_run *record, strait_run *run) {
    static const char section[] = "link.codec.";
    const strait_options *table = strait_run_options();
    char(*texts)[SET_BYTES] = NULL;
    const char *sets[SETS];
    int n = 0;
    STRAIT_TRY(strait_alloc(SETS, SET_BYTES, "options of a codec", (void **)&texts));
    for (int i = 0; i < table->n_rows && n < SETS; i++) {
        char value[STRAIT_OPTION_TEXT_MAX];
        const char *key = table->rows[i].key;
        if (strncmp(key, section, sizeof section - 1) != 0) continue;
        if (!record->is_given[i] && strcmp(key, "link.codec.name") != 0) continue;
        strait_options_show(&table->rows[i], record, value);
        (void)snprintf(texts[n], SET_BYTES, "%s=%s", key, value);
        sets[n] = texts[n];
        n++;
    }
    const strait_err err = strait_run_change(run, sets, n);
    run->dropped[0] = '\0';
    strait_alloc_free(texts);
    return err;
}

/* A record of an earlier version that names no codec had none. */
static strait_err take_record(const char *path, strait_run *record, strait_run *run) {
    int n = 0;
    STRAIT_TRY(strait_run_init_file(path, NULL, 0, record));
    const int was_chosen = record->link.codec.chosen_for[0] != '\0';
    if (!strait_run_is_auto(run) && !(was_chosen && strait_run_is_unnamed(run))) return STRAIT_OK;
    if (strait_run_is_auto(record))
        return strait_run_apply_rung(run, strait_codec_ladder(&n) + 1, "");
    return copy_codec(record, run);
}

/* Resuming never chooses again. */
strait_err strait_choose_recorded(strait_run *run, const char *folder) {
    char path[STRAIT_PATH_MAX];
    strait_run *record = NULL;
    if (!strait_run_is_auto(run) && !strait_run_is_unnamed(run)) return STRAIT_OK;
    STRAIT_TRY(strait_file_path(path, "%s/run.yaml", folder));
    if (!strait_session_holds_run(folder) || !strait_file_exists(path)) return STRAIT_OK;
    STRAIT_TRY(strait_alloc(1, sizeof *record, "run", (void **)&record));
    const strait_err err = take_record(path, record, run);
    strait_alloc_free(record);
    return err;
}

/* The rule of the codec that the record names. A record that cannot be read is of a version that
 * had no rules. */
static strait_err read_rule(const char *path, int64_t *out) {
    strait_run *record = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *record, "run", (void **)&record));
    const strait_err err = strait_run_init_file(path, NULL, 0, record);
    *out = err == STRAIT_OK ? record->link.codec.rule : STRAIT_CODEC_RULE_FIXED;
    strait_alloc_free(record);
    return err == STRAIT_ENOMEM ? err : STRAIT_OK;
}

/* A run keeps the rule that it began with, whatever new runs have. */
static strait_err take_rule(strait_run *run, const char *folder) {
    char path[STRAIT_PATH_MAX], text[64];
    const char *const sets[] = {text};
    int64_t rule = 0;
    if (run->link.codec.rule == 0) return STRAIT_OK;
    STRAIT_TRY(strait_file_path(path, "%s/run.yaml", folder));
    if (!strait_session_holds_run(folder) || !strait_file_exists(path)) return STRAIT_OK;
    STRAIT_TRY(read_rule(path, &rule));
    if (rule == 0 || rule == run->link.codec.rule) return STRAIT_OK;
    (void)snprintf(text, sizeof text, "link.codec.rule=%lld", (long long)rule);
    return strait_run_change(run, sets, 1);
}

/* A run whose file leaves the rows of its tables open keeps those it was trained with. Checkpoints
 * of earlier versions have a row per token id and do not say so. */
static strait_err take_table_rows(strait_run *run, const char *folder) {
    struct strait_checkpoint *checkpoint = NULL;
    int64_t *steps = NULL;
    int n = 0;
    if (run->model.table_rows != 0) return STRAIT_OK;
    STRAIT_TRY(strait_checkpoint_list(folder, &steps, &n));
    strait_alloc_free(steps);
    /* A damaged checkpoint is reported where it is loaded, or replaced by an older one. */
    if (n == 0 || strait_checkpoint_open_unchecked(folder, &checkpoint) != STRAIT_OK)
        return STRAIT_OK;
    const char *rows = strait_checkpoint_model(checkpoint, "table_rows");
    const char *vocab = strait_checkpoint_model(checkpoint, "vocab");
    const int64_t n_rows = rows != NULL ? strtoll(rows, NULL, 10) : 0;
    const int64_t n_vocab = vocab != NULL ? strtoll(vocab, NULL, 10) : 0;
    /* Below that the rule gives every token id its row, now as before. */
    if (n_vocab > STRAIT_SHAPE_WHOLE_TABLE)
        run->model.table_rows = n_rows > 0 && n_rows < n_vocab ? n_rows : n_vocab;
    strait_checkpoint_close(&checkpoint);
    return STRAIT_OK;
}

/* A run keeps the microbatches that it began with: sums, and with them the bits, follow from their
 * size. A record without one is of a version that had another rule. */
static strait_err take_microbatch(strait_run *run, const char *folder) {
    char path[STRAIT_PATH_MAX];
    strait_run *record = NULL;
    if (run->stages.microbatch != 0 || !strait_run_records_microbatch(run)) return STRAIT_OK;
    STRAIT_TRY(strait_file_path(path, "%s/run.yaml", folder));
    if (!strait_session_holds_run(folder) || !strait_file_exists(path)) return STRAIT_OK;
    STRAIT_TRY(strait_alloc(1, sizeof *record, "run", (void **)&record));
    const strait_err err = strait_run_init_file(path, NULL, 0, record);
    run->stages.microbatch = err == STRAIT_OK && record->stages.microbatch > 0
                                 ? record->stages.microbatch
                                 : strait_run_choose_microbatch_before(run);
    strait_alloc_free(record);
    return err == STRAIT_ENOMEM ? err : STRAIT_OK;
}

/* Stages that another command starts, or that are on other ranks, may have machines of their own.
 */
strait_choose_params strait_choose_locally(const strait_run *run) {
    return (strait_choose_params){.shares_device = run->stages.launch[0] == '\0' &&
                                                   strait_cluster_size() <= 1};
}

strait_err strait_choose_in(strait_run *run, const char *folder, const strait_choose_params *params,
                            char out[STRAIT_CHOICE_TEXT]) {
    strait_choice choice;
    if (folder != NULL) STRAIT_TRY(strait_choose_recorded(run, folder));
    if (folder != NULL) STRAIT_TRY(take_rule(run, folder));
    if (folder != NULL) STRAIT_TRY(take_table_rows(run, folder));
    if (folder != NULL) STRAIT_TRY(take_microbatch(run, folder));
    STRAIT_TRY(strait_choose_codec(run, params, &choice));
    strait_choice_describe(&choice, out);
    return STRAIT_OK;
}

strait_err strait_trainer_choose_codec(struct strait_run *run, const char *folder, char *out,
                                       size_t capacity) {
    const strait_choose_params params = strait_choose_locally(run);
    char text[STRAIT_CHOICE_TEXT];
    STRAIT_TRY(strait_choose_in(run, folder, &params, text));
    (void)snprintf(out, capacity, "%s", text);
    return STRAIT_OK;
}
