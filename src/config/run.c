#include "config/run.h"

#include "base/alloc.h"
#include "base/file.h"
#include "config/run_rule.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    FILE_MAX = 1 << 20
};

/* ---- loading ---- */

/* The variant that the codec uses where the run names none, if a preset depends on it; else NULL.
 */
static const char *implied_variant(const strait_run *run) {
    const strait_options *table = strait_run_options();
    const char *variant = strait_codec_default_variant(run->link.codec.name);
    for (int i = 0; run->link.codec.variant[0] == '\0' && i < table->n_presets; i++)
        if (strcmp(table->presets[i].key, "link.codec.variant") == 0 &&
            strcmp(table->presets[i].choice, variant) == 0)
            return variant;
    return NULL;
}

int strait_run_is_given(const strait_run *run, const char *key) {
    const strait_options *table = strait_run_options();
    return run->is_given[strait_options_find(table, key) - table->rows];
}

/* An implied variant is loaded as an override, so that it has the same presets as a variant that is
 * named. It stays a default: is_given is that of the user's own settings. */
static strait_err load_presets(const strait_options_source *source, strait_run *run) {
    unsigned char ignored[STRAIT_RUN_OPTIONS];
    strait_options_source noting = *source;
    noting.dropped = run->dropped;
    run->dropped[0] = '\0';
    STRAIT_TRY(strait_options_load(strait_run_options(), &noting, run, run->is_given));
    const char *variant = implied_variant(run);
    if (variant == NULL) return STRAIT_OK;
    run->is_given[strait_options_find(strait_run_options(), "link.codec.variant") -
                  strait_run_options()->rows] = 0; // an empty one names none
    char set[STRAIT_RUN_TEXT];
    (void)snprintf(set, sizeof set, "link.codec.variant=%s", variant);
    void *memory = NULL;
    STRAIT_TRY(strait_alloc((size_t)source->n_sets + 1, sizeof(char *), "options", &memory));
    const char **sets = memory;
    for (int i = 0; i < source->n_sets; i++)
        sets[i] = source->sets[i];
    sets[source->n_sets] = set;
    strait_options_source whole = *source;
    whole.sets = sets;
    whole.n_sets++;
    const strait_err err = strait_options_load(strait_run_options(), &whole, run, ignored);
    strait_alloc_free(memory);
    return err;
}

/* `is_record`: the text may be the record of a run that an earlier version began. */
static strait_err load_options(const strait_options_source *source, int is_record,
                               strait_run *run) {
    STRAIT_TRY(load_presets(source, run));
    strait_run_apply_rule(run, is_record && strait_run_is_record(source->text, source->bytes));
    return STRAIT_OK;
}

/* *is_loaded tells errors of options that do not fit together from those of single options, which
 * name their place themselves. */
static strait_err load_and_resolve(const strait_options_source *source, int is_record,
                                   strait_run *run, int *is_loaded) {
    STRAIT_TRY(load_options(source, is_record, run));
    *is_loaded = 1;
    return strait_run_resolve(source->name, run);
}

/* ---- which override to blame ---- */

/* Ordered by how much an override has to do with an error that goes away without it. */
typedef enum outcome {
    LOADS,
    FAILS_OTHERWISE,
    FAILS_ALIKE
} outcome;

/* An error of options that do not fit together, and memory to try others. */
typedef struct conflict {
    const strait_options_source *source;
    int is_record;
    char detail[512];
    strait_run *run;
    const char **sets; // as many as the source has
} conflict;

/* What happens without override `skipped`, or without all of them where it is -1. */
static outcome load_without(conflict *x, int skipped) {
    strait_options_source rest = *x->source;
    int is_loaded = 0;
    rest.sets = x->sets;
    rest.n_sets = 0;
    for (int i = 0; i < x->source->n_sets && skipped >= 0; i++)
        if (i != skipped) x->sets[rest.n_sets++] = x->source->sets[i];
    if (load_and_resolve(&rest, x->is_record, x->run, &is_loaded) == STRAIT_OK) return LOADS;
    return is_loaded && strcmp(strait_err_detail(), x->detail) == 0 ? FAILS_ALIKE : FAILS_OTHERWISE;
}

/* Lists the overrides without which the outcome is at most `limit`. Returns how many there are. */
static int list_overrides(conflict *x, outcome limit, char *out, size_t capacity) {
    size_t used = 0;
    int n = 0;
    for (int i = 0; i < x->source->n_sets; i++) {
        if (limit < FAILS_ALIKE && load_without(x, i) > limit) continue;
        const int put = snprintf(out + used, capacity - used, "%s%.80s", n++ > 0 ? ", " : "",
                                 x->source->sets[i]);
        used += put > 0 && (size_t)put < capacity - used ? (size_t)put : 0;
    }
    return n;
}

/* Describes the error in x->detail: names the overrides without which all options fit together,
 * else those without which others do not, else all if the file alone does not have that error. A
 * user who is sent to a file that is right finds nothing there. */
static strait_err blame(conflict *x, strait_err err) {
    char text[256];
    const int has_culprit = list_overrides(x, LOADS, text, sizeof text) > 0 ||
                            list_overrides(x, FAILS_OTHERWISE, text, sizeof text) > 0 ||
                            (load_without(x, -1) != FAILS_ALIKE &&
                             list_overrides(x, FAILS_ALIKE, text, sizeof text) > 0);
    return STRAIT_FAIL(err, "%s: %s", has_culprit ? text : x->source->name, x->detail);
}

/* Adds who caused the error `err` of options that do not fit together. *run may be changed. */
static strait_err name_culprit(const strait_options_source *source, int is_record, strait_err err,
                               strait_run *run) {
    conflict x = {.source = source, .is_record = is_record, .run = run};
    void *sets = NULL;
    (void)snprintf(x.detail, sizeof x.detail, "%s", strait_err_detail());
    STRAIT_TRY(strait_alloc((size_t)source->n_sets, sizeof(char *), "options", &sets));
    x.sets = sets;
    err = blame(&x, err);
    strait_alloc_free(sets);
    return err;
}

/* ---- from text and from files ---- */

/* Loads into a second run on the heap, because a run takes several kilobytes and *out must stay as
 * it was on error. `is_file`: the source is a file and overrides of a user, who must be told which
 * of them is wrong. */
static strait_err load(const strait_options_source *source, int is_record, int is_file,
                       strait_run *out) {
    void *memory = NULL;
    int is_loaded = 0;
    STRAIT_TRY(strait_alloc(1, sizeof(strait_run), "run", &memory));
    strait_run *run = memory;
    strait_err err = load_and_resolve(source, is_record, run, &is_loaded);
    if (err == STRAIT_ECONFIG && is_loaded && is_file && source->n_sets > 0)
        err = name_culprit(source, is_record, err, run);
    else if (err != STRAIT_OK && is_loaded)
        strait_err_prefix("%s", source->name);
    if (err == STRAIT_OK) *out = *run;
    strait_alloc_free(run);
    return err;
}

/* Without a file there is no folder, so relative paths stay as they are. */
strait_err strait_run_init_text(const char *name, const char *text, size_t bytes,
                                const char *const *sets, int n_sets, strait_run *out) {
    const strait_options_source source = {
        .name = name, .text = text, .bytes = bytes, .sets = sets, .n_sets = n_sets};
    return load(&source, 1, 0, out);
}

strait_err strait_run_init_options(const char *name, const char *const *sets, int n_sets,
                                   strait_run *out) {
    const strait_options_source source = {.name = name, .text = "", .sets = sets, .n_sets = n_sets};
    return load_options(&source, 0, out);
}

/* The absolute folder of `path`, where the current folder is `here`. */
static strait_err folder_of(const char *path, const char *here, char out[STRAIT_PATH_MAX]) {
    const char *slash = strrchr(path, '/');
    if (slash == NULL) return strait_file_path(out, "%s", here);
    const int length = (int)(slash - path);
    if (path[0] == '/') return strait_file_path(out, "%.*s", length, path);
    return strait_file_path(out, "%s/%.*s", here, length, path);
}

/* Overrides on a command line are relative to the current folder, not to that of the run file. */
static strait_err current_folder(char out[STRAIT_PATH_MAX]) {
    if (getcwd(out, STRAIT_PATH_MAX) != NULL) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ECONFIG, "the current folder no longer exists");
}

strait_err strait_run_init_file(const char *path, const char *const *sets, int n_sets,
                                strait_run *out) {
    char folder[STRAIT_PATH_MAX];
    char here[STRAIT_PATH_MAX];
    STRAIT_TRY(current_folder(here));
    STRAIT_TRY(folder_of(path, here, folder));
    char *text = NULL;
    size_t bytes = 0;
    strait_err err = strait_file_read(path, FILE_MAX, &text, &bytes);
    if (err == STRAIT_ENOMEM) return err;
    if (err != STRAIT_OK) return STRAIT_ECONFIG; // the user named a wrong run file
    const strait_options_source source = {.name = path,
                                          .text = text,
                                          .bytes = bytes,
                                          .folder = folder,
                                          .sets = sets,
                                          .n_sets = n_sets,
                                          .set_folder = here};
    err = load(&source, 1, 1, out);
    strait_alloc_free(text);
    return err;
}

/* ---- the public handle ---- */

static strait_err open_run(strait_run **out) {
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(strait_run), "run", &memory));
    *out = memory;
    return STRAIT_OK;
}

/* Gives the caller a run that was loaded without error, and frees it otherwise. */
static strait_err finish(strait_err err, strait_run *run, struct strait_run **out) {
    if (err == STRAIT_OK)
        *out = run;
    else
        strait_run_close(&run);
    return err;
}

strait_err strait_run_load(const char *path, const char *const *sets, int n_sets,
                           struct strait_run **out) {
    strait_run *run = NULL;
    STRAIT_TRY(open_run(&run));
    return finish(strait_run_init_file(path, sets, n_sets, run), run, out);
}

strait_err strait_run_parse(const char *name, const char *text, size_t bytes,
                            const char *const *sets, int n_sets, struct strait_run **out) {
    strait_run *run = NULL;
    STRAIT_TRY(open_run(&run));
    return finish(strait_run_init_text(name, text, bytes, sets, n_sets, run), run, out);
}

strait_err strait_run_default(struct strait_run **out) {
    return strait_run_parse("run", "", 0, NULL, 0, out);
}

/* The run is written as text and read again with the new values: what the user did not set is then
 * derived anew, by the same rules as for a file. */
strait_err strait_run_change(strait_run *run, const char *const *sets, int n_sets) {
    char here[STRAIT_PATH_MAX];
    char *text = NULL;
    STRAIT_TRY(current_folder(here));
    strait_options_source source = {
        .name = run->name, .sets = sets, .n_sets = n_sets, .set_folder = here};
    STRAIT_TRY(strait_run_render(run, &text, &source.bytes));
    source.text = text;
    const strait_err err = load(&source, 0, 0, run);
    strait_alloc_free(text);
    return err;
}

strait_err strait_run_set(struct strait_run *run, const char *key, const char *value) {
    char set[STRAIT_OPTION_TEXT_MAX];
    const char *const sets[] = {set};
    const int length = snprintf(set, sizeof set, "%s=%s", key, value);
    if (length < 0 || (size_t)length >= sizeof set)
        return STRAIT_FAIL(STRAIT_ECONFIG, "%.80s: the value is too long", key);
    return strait_run_change(run, sets, 1);
}

/* The row of a key; NULL, with the error described, for a key that does not exist. */
static const strait_option *find(const char *key) {
    const strait_option *option = strait_options_find(strait_run_options(), key);
    if (option == NULL) (void)strait_options_unknown(strait_run_options(), key);
    return option;
}

/* Values are shown as a run file would write them. */
strait_err strait_run_get_text(const struct strait_run *run, const char *key, char *out,
                               size_t capacity) {
    const strait_option *option = find(key);
    char text[STRAIT_OPTION_TEXT_MAX];
    if (option == NULL) return STRAIT_ECONFIG;
    strait_options_show(option, run, text);
    if (strlen(text) >= capacity)
        return STRAIT_FAIL(STRAIT_EINVAL, "%s: its value has %zu bytes, the buffer holds %zu", key,
                           strlen(text) + 1, capacity);
    memcpy(out, text, strlen(text) + 1);
    return STRAIT_OK;
}

/* Options that are on or off read as 1 and 0. */
strait_err strait_run_get_int(const struct strait_run *run, const char *key, int64_t *out) {
    const strait_option *option = find(key);
    if (option == NULL) return STRAIT_ECONFIG;
    const void *field = (const char *)run + option->offset;
    if (option->kind == STRAIT_OPTION_INT)
        *out = *(const int64_t *)field;
    else if (option->kind == STRAIT_OPTION_BOOL)
        *out = *(const int *)field;
    else
        return STRAIT_FAIL(STRAIT_EINVAL, "%s is not a whole number", key);
    return STRAIT_OK;
}

strait_err strait_run_get_real(const struct strait_run *run, const char *key, double *out) {
    const strait_option *option = find(key);
    if (option == NULL) return STRAIT_ECONFIG;
    const void *field = (const char *)run + option->offset;
    switch (option->kind) {
    case STRAIT_OPTION_INT: *out = (double)*(const int64_t *)field; return STRAIT_OK;
    case STRAIT_OPTION_REAL:
    case STRAIT_OPTION_DURATION:
    case STRAIT_OPTION_RATE: *out = *(const double *)field; return STRAIT_OK;
    default: return STRAIT_FAIL(STRAIT_EINVAL, "%s is not a number", key);
    }
}

void strait_run_close(struct strait_run **run) {
    strait_alloc_free(*run);
    *run = NULL;
}
