#include "study/run_key.h"

#include "base/alloc.h"
#include "base/file.h"
#include "config/run_rule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Options without an effect on losses, bytes or speed. */
static const char *const ignored[] = {"name",
                                      "train.log_every",
                                      "train.save_every",
                                      "train.keep_checkpoints",
                                      "stages.launch",
                                      "stages.address",
                                      "stages.coordinator",
                                      "link.deadline",
                                      "link.codec.rule", // what it sets is compared
                                      "device.ordinal",
                                      NULL};

static int is_ignored(const char *key) {
    for (int i = 0; ignored[i] != NULL; i++)
        if (strcmp(ignored[i], key) == 0) return 1;
    return 0;
}

/* Replaces paths, separated by commas, by the digests of the files. */
static strait_err digest_files(const char *paths, char out[STRAIT_OPTION_TEXT_MAX]) {
    char copy[STRAIT_OPTION_TEXT_MAX];
    char *rest = NULL;
    size_t used = 0;
    (void)snprintf(copy, sizeof copy, "%s", paths);
    out[0] = '\0';
    for (char *path = strtok_r(copy, ",", &rest); path != NULL; path = strtok_r(NULL, ",", &rest)) {
        char digest[STRAIT_HASH_TEXT];
        const int is_file = strait_file_is_regular(path); // a run's folder goes by its path
        if (is_file) STRAIT_TRY(strait_hash_file(path, digest));
        used += (size_t)snprintf(out + used, STRAIT_OPTION_TEXT_MAX - used, "%s%s",
                                 used > 0 ? "," : "", is_file ? digest : path);
        if (used >= STRAIT_OPTION_TEXT_MAX)
            return STRAIT_FAIL(STRAIT_ECONFIG, "data: too many files for one run of a study");
    }
    return STRAIT_OK;
}

/* A run in which the rule of its codec sends the stream itself is that of another codec. */
static void name_stream(strait_run *run) {
    const char *stream = strait_run_rule_stream(run);
    if (stream == NULL) return;
    (void)snprintf(run->link.codec.name, sizeof run->link.codec.name, "%s", stream);
    run->link.codec.variant[0] = '\0';
    run->link.codec.ratio = 0;
    run->link.codec.bytes_per_token = 0;
}

static strait_err collect(const strait_run *run, const strait_run *defaults, json_t *object) {
    const strait_options *table = strait_run_options();
    for (int i = 0; i < table->n_rows; i++) {
        const strait_option *option = &table->rows[i];
        char text[STRAIT_OPTION_TEXT_MAX];
        char other[STRAIT_OPTION_TEXT_MAX];
        strait_options_show(option, run, text);
        strait_options_show(option, defaults, other);
        if (is_ignored(option->key) || strcmp(text, other) == 0) continue;
        const int is_files = option->kind == STRAIT_OPTION_PATH ||
                             option->kind == STRAIT_OPTION_PATHS;
        if (is_files) STRAIT_TRY(digest_files(text, other));
        if (json_object_set_new(object, option->key, json_string(is_files ? other : text)) != 0)
            return STRAIT_FAIL(STRAIT_ENOMEM, "settings of a run");
    }
    return STRAIT_OK;
}

strait_err strait_run_key_settings(const char *const *sets, int n_sets, json_t **out) {
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(2, sizeof(strait_run), "run", &memory));
    strait_run *runs = memory;
    json_t *object = json_object();
    strait_err err = strait_run_init_options("run", sets, n_sets, &runs[0]);
    if (err == STRAIT_OK) err = strait_run_init_options("run", NULL, 0, &runs[1]);
    if (err == STRAIT_OK) {
        name_stream(&runs[0]);
        err = collect(&runs[0], &runs[1], object);
    }
    strait_alloc_free(memory);
    if (err != STRAIT_OK)
        json_decref(object);
    else
        *out = object;
    return err;
}

strait_err strait_run_key(const json_t *settings, char out[STRAIT_HASH_TEXT]) {
    char *text = json_dumps(settings, JSON_COMPACT | JSON_SORT_KEYS);
    if (text == NULL) return STRAIT_FAIL(STRAIT_ENOMEM, "key of a run");
    strait_hash_text(text, strlen(text), out);
    free(text);
    return STRAIT_OK;
}
