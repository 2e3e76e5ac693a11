/* compare_runs.c - what was run: models, codecs, seeds, and in which keys runs differ. */
#include <strait/trainer.h>

#include "base/alloc.h"
#include "base/file.h"
#include "compare.h"
#include "config/run_changes.h"
#include "train/outlook/choose.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void strait_compare_read_run(const char *path, strait_compare_row *row) {
    char file[STRAIT_PATH_MAX];
    void *memory = NULL;
    strait_trainer_info info;
    row->parameters = row->flops = (double)NAN;
    if (!strait_file_is_folder(path) || strait_file_path(file, "%s/run.yaml", path) != STRAIT_OK ||
        !strait_file_exists(file) ||
        strait_alloc(1, sizeof(strait_run), "run", &memory) != STRAIT_OK)
        return;
    if (strait_run_init_file(file, NULL, 0, memory) != STRAIT_OK) { // of another version
        strait_alloc_free(memory);
        return;
    }
    row->run = memory;
    (void)strait_choose_recorded(memory, path); // an earlier version named no codec: it had none
    if (strait_trainer_plan(row->run, &info) != STRAIT_OK) return;
    row->parameters = (double)info.parameters;
    row->flops = info.flops_per_token;
}

/* Keys that do not change what is computed. */
static int is_about_the_machine(const char *key) {
    static const char *const heads[] = {
        "device.threads",   "device.ordinal",        "metrics.", "stages.launch", "train.log_every",
        "train.save_every", "train.keep_checkpoints"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        if (strncmp(key, heads[i], strlen(heads[i])) == 0) return 1;
    return 0;
}

struct differences {
    char *text;
    size_t capacity, used;
    int n, n_unnamed, n_seeds;
};

static void on_difference(void *user, const char *key, const char *a, const char *b,
                          int is_derived) {
    struct differences *d = user;
    (void)is_derived; // a codec's presets are derived, and are what misleads
    if (is_about_the_machine(key)) return;
    if (strcmp(key, "train.seed") == 0) {
        d->n_seeds++;
        return;
    }
    char item[256];
    const int n = snprintf(item, sizeof item, "%s%s %.60s -> %.60s", d->n > 0 ? ", " : "", key,
                           a[0] != '\0' ? a : "(empty)", b[0] != '\0' ? b : "(empty)");
    d->n++;
    if (d->text == NULL) return;
    if (n > 0 && d->used + (size_t)n + 24 < d->capacity) {
        memcpy(d->text + d->used, item, (size_t)n + 1);
        d->used += (size_t)n;
    } else {
        d->n_unnamed++;
    }
}

void strait_compare_differences(const strait_compare_row *first, const strait_compare_row *row,
                                char *out, size_t capacity) {
    struct differences d = {.text = out, .capacity = capacity};
    out[0] = '\0';
    if (first->run == NULL || row->run == NULL) return;
    strait_run_compare(first->run, row->run, on_difference, &d);
    if (d.n_unnamed > 0)
        (void)snprintf(out + d.used, capacity - d.used, " and %d more", d.n_unnamed);
}

static int is_same_but_seed(const strait_compare_row *a, const strait_compare_row *b) {
    struct differences d = {.text = NULL};
    if (a->run == NULL || b->run == NULL) return 0;
    strait_run_compare(a->run, b->run, on_difference, &d);
    return d.n == 0 && d.n_seeds == 1;
}

void strait_compare_group(strait_compare_row *rows, int n) {
    for (int i = 0; i < n; i++) {
        rows[i].group = i;
        rows[i].n_seeds = 1;
        for (int k = 0; k < i && rows[i].group == i; k++)
            if (rows[k].group == k && is_same_but_seed(&rows[k], &rows[i])) rows[i].group = k;
        if (rows[i].group == i) continue;
        rows[i].n_seeds = 0;
        rows[rows[i].group].n_seeds++;
    }
}

strait_compare_mean strait_compare_mean_of(const strait_compare_row *rows, int n, int group) {
    strait_compare_mean m = {.low = (double)INFINITY, .high = -(double)INFINITY};
    for (int i = 0; i < n; i++) {
        if (rows[i].group != group) continue;
        m.mean += rows[i].loss;
        m.low = fmin(m.low, rows[i].loss);
        m.high = fmax(m.high, rows[i].loss);
        m.n++;
    }
    m.mean /= m.n;
    return m;
}
