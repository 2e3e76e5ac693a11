#include "convert/hf_read.h"

#include "base/alloc.h"
#include "convert/floats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "[320 x 32]", for a message. */
static void show_dims(const strait_safetensor *t, char out[96]) {
    size_t used = (size_t)snprintf(out, 96, "[");
    for (int i = 0; i < t->n_dims && used < 80; i++)
        used += (size_t)snprintf(out + used, 96 - used, "%s%lld", i > 0 ? " x " : "",
                                 (long long)t->dims[i]);
    (void)snprintf(out + used, 96 - used, "]");
}

static int has_shape(const strait_safetensor *t, const strait_hf_part *part) {
    if (part->rows == 1 && t->n_dims == 1) return t->dims[0] == part->cols;
    return t->n_dims == 2 && t->dims[0] == part->rows && t->dims[1] == part->cols;
}

static strait_err check_part(const struct strait_hf_folder *folder, const strait_hf_part *part) {
    const strait_safetensor *t = strait_hf_folder_find(folder, part->name);
    strait_dtype format;
    char found[96];
    if (t == NULL)
        return STRAIT_FAIL(STRAIT_EDATA, "%s: tensor \"%s\" is missing",
                           strait_hf_folder_path(folder), part->name);
    if (!has_shape(t, part)) {
        show_dims(t, found);
        return STRAIT_FAIL(STRAIT_EDATA,
                           "%s: tensor \"%s\" is %s, but config.json means [%lld x %lld]",
                           strait_hf_folder_path(folder), part->name, found, (long long)part->rows,
                           (long long)part->cols);
    }
    if (!strait_floats_format(t->dtype, &format))
        return STRAIT_FAIL(STRAIT_EDATA,
                           "%s: tensor \"%s\" is of type %.16s: Strait reads F32, F16 and BF16",
                           strait_hf_folder_path(folder), part->name, t->dtype);
    return STRAIT_OK;
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A tensor without a place, such as the bias of an output projection, would be lost: the model
 * would compute something else. */
static strait_err check_others(const struct strait_hf_model *m) {
    const char **names = NULL;
    const size_t capacity = (size_t)m->n_tensors * STRAIT_HF_PARTS;
    size_t n = 0;
    strait_err err = STRAIT_OK;
    STRAIT_TRY(strait_alloc(capacity, sizeof *names, "names of tensors", (void **)&names));
    for (int i = 0; i < m->n_tensors; i++)
        for (int p = 0; p < m->tensors[i].n_parts; p++)
            names[n++] = m->tensors[i].parts[p].name;
    qsort((void *)names, n, sizeof *names, by_text);
    const strait_safetensor *t = NULL;
    for (int i = 0; err == STRAIT_OK && (t = strait_hf_folder_at(m->folder, i)) != NULL; i++)
        if (bsearch((const void *)&t->name, (const void *)names, n, sizeof *names, by_text) ==
                NULL &&
            !strait_hf_names_is_idle(&m->config.shape, t->name))
            err = STRAIT_FAIL(STRAIT_EDATA, "%s: tensor \"%.80s\" has no place in a %s model",
                              strait_hf_folder_path(m->folder), t->name,
                              strait_hf_class_model_type(m->config.class));
    strait_alloc_free((void *)names);
    return err;
}

strait_err strait_hf_model_open(const char *path, struct strait_hf_model *m) {
    STRAIT_TRY(strait_hf_config_load(path, &m->config));
    STRAIT_TRY(strait_hf_folder_open(path, &m->folder));
    STRAIT_TRY(strait_hf_names_list(&m->config.shape, &m->tensors, &m->n_tensors));
    for (int i = 0; i < m->n_tensors; i++)
        for (int p = 0; p < m->tensors[i].n_parts; p++)
            STRAIT_TRY(check_part(m->folder, &m->tensors[i].parts[p]));
    return check_others(m);
}

void strait_hf_model_close(struct strait_hf_model *m) {
    strait_hf_folder_close(&m->folder);
    strait_alloc_free(m->tensors);
    *m = (struct strait_hf_model){0};
}

/* The disk reads the next tensor while this one is converted and written. */
static void prefetch(const struct strait_hf_model *m, int i) {
    for (int p = 0; i < m->n_tensors && p < m->tensors[i].n_parts; p++)
        strait_hf_folder_prefetch(m->folder, m->tensors[i].parts[p].name);
}

strait_err strait_hf_model_read(const struct strait_hf_model *m, int i, float *out) {
    const strait_hf_tensor *tensor = &m->tensors[i];
    prefetch(m, i + 1);
    for (int p = 0; p < tensor->n_parts; p++) {
        const strait_hf_part *part = &tensor->parts[p];
        const strait_safetensor *t = strait_hf_folder_find(m->folder, part->name);
        const int64_t n = part->rows * part->cols;
        strait_dtype format = STRAIT_F32;
        (void)strait_floats_format(t->dtype, &format); // open has checked it
        strait_floats_widen(out, t->data, format, n);
        strait_hf_folder_drop_pages(m->folder, part->name);
        const int64_t bad = strait_floats_first_nonfinite(out, n);
        if (bad >= 0)
            return STRAIT_FAIL(STRAIT_EDATA, "%s: tensor \"%s\": value %lld is not finite",
                               strait_hf_folder_path(m->folder), part->name, (long long)bad);
        out += n;
    }
    return STRAIT_OK;
}

int64_t strait_hf_model_largest(const struct strait_hf_model *m) {
    int64_t most = 0;
    for (int i = 0; i < m->n_tensors; i++) {
        const int64_t n = m->tensors[i].rows * m->tensors[i].cols;
        if (n > most) most = n;
    }
    return most;
}
