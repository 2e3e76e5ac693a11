#include "base/alloc.h"
#include "base/file.h"
#include "config/run.h"
#include "config/run_rule.h"

#include <string.h>

static const char header[] = "# Written by strait. Keys after a # were not set: they are defaults, "
                             "or follow from other keys,\n"
                             "# and are derived again when this file is read.\n";

/* Versions before have the same first line. */
int strait_run_is_record(const char *text, size_t bytes) {
    const size_t line = strcspn(header, ".") + 1;
    return bytes >= line && memcmp(text, header, line) == 0;
}

static strait_err render(const strait_run *run, const unsigned char *is_given, char **out,
                         size_t *out_bytes) {
    const strait_options *table = strait_run_options();
    const size_t head = sizeof header - 1;
    const size_t body = strait_options_render(table, run, is_given, NULL, 0);
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(head + body + 1, 1, "run file", &memory));
    char *text = memory;
    memcpy(text, header, head);
    (void)strait_options_render(table, run, is_given, text + head, body + 1);
    *out = text;
    *out_bytes = head + body;
    return STRAIT_OK;
}

/* Marks the options that have other values in `loaded` than in `run` as given. Returns how many
 * were not marked before. */
static int mark_differences(const strait_run *run, const strait_run *loaded,
                            unsigned char *is_given) {
    const strait_options *table = strait_run_options();
    int n = 0;
    for (int i = 0; i < table->n_rows; i++) {
        char ours[STRAIT_OPTION_TEXT_MAX];
        char theirs[STRAIT_OPTION_TEXT_MAX];
        if (is_given[i]) continue;
        strait_options_show(&table->rows[i], run, ours);
        strait_options_show(&table->rows[i], loaded, theirs);
        if (strcmp(ours, theirs) == 0) continue;
        is_given[i] = 1;
        n++;
    }
    return n;
}

/* Code of ours may change a field of a loaded run, such as the number of threads, without marking
 * it as given. So the text is loaded again, and what does not come out the same is written as set;
 * presets may then change other options, hence the loop, which ends because marks only grow. A text
 * that does not load, because a field was changed beyond its bounds, becomes one with every value.
 */
static strait_err render_checked(const char *name, const strait_run *run, strait_run *loaded,
                                 char **out, size_t *out_bytes) {
    unsigned char is_given[STRAIT_RUN_OPTIONS];
    memcpy(is_given, run->is_given, sizeof is_given);
    for (;;) {
        STRAIT_TRY(render(run, is_given, out, out_bytes));
        const strait_err err = strait_run_init_text(name, *out, *out_bytes, NULL, 0, loaded);
        if (err == STRAIT_OK && mark_differences(run, loaded, is_given) == 0) return STRAIT_OK;
        strait_alloc_free(*out);
        *out = NULL;
        if (err == STRAIT_ENOMEM) return err;
        if (err != STRAIT_OK) return render(run, NULL, out, out_bytes);
    }
}

/* The text of a file that is called `name`: a run without a name of its own is called after it. */
static strait_err render_as(const char *name, const strait_run *run, char **out_text,
                            size_t *out_bytes) {
    void *loaded = NULL;
    char *text = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(strait_run), "run", &loaded));
    const strait_err err = render_checked(name, run, loaded, &text, out_bytes);
    strait_alloc_free(loaded);
    if (err == STRAIT_OK) *out_text = text;
    return err;
}

strait_err strait_run_render(const strait_run *run, char **out_text, size_t *out_bytes) {
    return render_as(run->name, run, out_text, out_bytes);
}

strait_err strait_run_save(const struct strait_run *run, const char *path) {
    char *text = NULL;
    size_t bytes = 0;
    STRAIT_TRY(render_as(path, run, &text, &bytes));
    const strait_err err = strait_file_replace(path, text, bytes);
    strait_alloc_free(text);
    return err;
}
