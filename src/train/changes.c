#include "train/changes.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "config/run_changes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char log_name[] = "changes.jsonl", run_name[] = "run.yaml";

struct changes {
    FILE *file;
    int64_t step;
    char *text;
    size_t used;
    int n, n_unnamed; // differences, and those that the text has no space for
    strait_err err;
};

/* One line per difference, so that a reader needs no more than grep. */
static void write_line(struct changes *c, const char *key, const char *from, const char *to,
                       int is_derived) {
    json_t *line = json_pack("{sI ss ss ss sb}", "step", (json_int_t)c->step, "key", key, "from",
                             from, "to", to, "derived", is_derived);
    if (line != NULL) (void)json_object_set_new(line, "time", json_integer((json_int_t)time(NULL)));
    char *text = line != NULL ? json_dumps(line, JSON_COMPACT) : NULL;
    if (text == NULL || fprintf(c->file, "%s\n", text) < 0)
        c->err = STRAIT_FAIL(STRAIT_EIO, "%s: cannot write", log_name);
    free(text);
    json_decref(line);
}

static void on_difference(void *user, const char *key, const char *from, const char *to,
                          int is_derived) {
    struct changes *c = user;
    char item[256];
    write_line(c, key, from, to, is_derived);
    const int n = snprintf(item, sizeof item, "%s%s %.80s -> %.80s%s", c->n > 0 ? ", " : "", key,
                           from[0] != '\0' ? from : "(empty)", to[0] != '\0' ? to : "(empty)",
                           is_derived ? " (derived)" : "");
    c->n++;
    if (n > 0 && c->used + (size_t)n + 32 < STRAIT_CHANGES_TEXT) {
        memcpy(c->text + c->used, item, (size_t)n + 1);
        c->used += (size_t)n;
    } else {
        c->n_unnamed++;
    }
}

/* The file is created only if there is something to write. */
static void ignore(void *user, const char *key, const char *a, const char *b, int is_derived) {
    (void)key;
    (void)a;
    (void)b;
    (void)is_derived;
    ++*(int *)user;
}

static strait_err record(const strait_run *old, const strait_run *run, const char *folder,
                         struct changes *c) {
    char path[STRAIT_PATH_MAX];
    int n = 0;
    strait_run_compare(old, run, ignore, &n);
    if (n == 0) return STRAIT_OK;
    STRAIT_TRY(strait_file_path(path, "%s/%s", folder, log_name));
    c->file = fopen(path, "ae");
    if (c->file == NULL) return STRAIT_FAIL(STRAIT_EIO, "%s: cannot write", path);
    c->used = (size_t)snprintf(
        c->text, STRAIT_CHANGES_TEXT,
        "changed since run.yaml was written, at step %lld: ", (long long)c->step);
    strait_run_compare(old, run, on_difference, c);
    const strait_err err = strait_file_finish(&c->file, path);
    if (c->n_unnamed > 0)
        (void)snprintf(c->text + c->used, STRAIT_CHANGES_TEXT - c->used, " and %d more",
                       c->n_unnamed);
    return c->err != STRAIT_OK ? c->err : err;
}

strait_err strait_changes_record(const strait_run *run, const char *folder, int64_t step,
                                 char text[STRAIT_CHANGES_TEXT]) {
    char path[STRAIT_PATH_MAX];
    void *old = NULL;
    struct changes c = {.step = step, .text = text};
    text[0] = '\0';
    STRAIT_TRY(strait_file_path(path, "%s/%s", folder, run_name));
    if (!strait_file_exists(path)) return STRAIT_OK;
    STRAIT_TRY(strait_alloc(1, sizeof(strait_run), "run", &old));
    strait_err err = strait_run_init_file(path, NULL, 0, old);
    if (err == STRAIT_ECONFIG) { // of an earlier version, or edited
        (void)snprintf(text, STRAIT_CHANGES_TEXT,
                       "what changed is unknown, because run.yaml cannot be read: %.300s",
                       strait_err_detail());
        err = STRAIT_OK;
    } else if (err == STRAIT_OK) {
        err = record(old, run, folder, &c);
    }
    strait_alloc_free(old);
    return err;
}
