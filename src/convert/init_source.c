#include "convert/init_source.h"

#include "base/file.h"
#include "config/description.h"
#include "data/tokenizer/tokenizer.h"

#include <stdio.h>
#include <string.h>

static int is_hf(const struct strait_init_source *source) {
    return source->hf.folder != NULL;
}

strait_err strait_init_source_open(const char *path, struct strait_init_source *s) {
    char config[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_file_path(config, "%s/config.json", path));
    if (strait_file_exists(config)) return strait_hf_model_open(path, &s->hf);
    STRAIT_TRY(strait_checkpoint_open(path, STRAIT_CHECKPOINT_NEWEST_VALID, &s->checkpoint));
    STRAIT_TRY(strait_describe_read(s->checkpoint, &s->plan));
    return strait_weights_source_open(s->checkpoint, &s->plan, &s->weights);
}

void strait_init_source_close(struct strait_init_source *s) {
    strait_weights_source_close(&s->weights);
    strait_checkpoint_close(&s->checkpoint);
    strait_hf_model_close(&s->hf);
}

/* The i-th tensor of all files with weights. Adapters are counted, but match nothing: the weights
 * contain them. */
static const strait_safetensor *weight_at(const struct strait_checkpoint *checkpoint, int i) {
    const struct strait_safetensors *file = NULL;
    const char *name = NULL;
    for (int f = 0; (file = strait_checkpoint_file(checkpoint, f, &name)) != NULL; f++) {
        if (strstr(name, ".state.") != NULL) continue;
        const int n = strait_safetensors_count(file);
        if (i < n) return strait_safetensors_at(file, i);
        i -= n;
    }
    return NULL;
}

const strait_safetensor *strait_init_source_stored(const struct strait_init_source *s, int i) {
    return is_hf(s) ? NULL : weight_at(s->checkpoint, i);
}

int strait_init_source_at(const struct strait_init_source *s, int i, const char **name,
                          int64_t *rows, int64_t *cols) {
    if (is_hf(s)) {
        if (i >= s->hf.n_tensors) return 0;
        *name = s->hf.tensors[i].name;
        *rows = s->hf.tensors[i].rows;
        *cols = s->hf.tensors[i].cols;
        return 1;
    }
    const strait_safetensor *t = weight_at(s->checkpoint, i);
    if (t == NULL) return 0;
    *name = strait_weights_source_is_adapter(t->name) ? "" : t->name;
    *rows = t->n_dims > 1 ? t->dims[0] : 1;
    *cols = t->n_dims > 0 ? t->dims[t->n_dims - 1] : 1;
    strait_weights_source_shape(&s->weights, t->name, rows, cols);
    return 1;
}

strait_err strait_init_source_read(const struct strait_init_source *s, int i, float *out) {
    const char *name = NULL;
    int64_t rows = 0, cols = 0;
    if (is_hf(s)) return strait_hf_model_read(&s->hf, i, out);
    (void)strait_init_source_at(s, i, &name, &rows, &cols);
    return strait_weights_source_read(&s->weights, name, rows, cols, out);
}

/* The fingerprint of FOLDER/tokenizer.json; "" if there is none that Strait can read. */
static strait_err fingerprint_in(const char *folder, char out[80]) {
    char path[STRAIT_PATH_MAX];
    struct strait_tokenizer *tokenizer = NULL;
    out[0] = '\0';
    STRAIT_TRY(strait_file_path(path, "%s/tokenizer.json", folder));
    if (!strait_file_exists(path) || strait_tokenizer_open(path, &tokenizer) != STRAIT_OK)
        return STRAIT_OK;
    (void)snprintf(out, 80, "%s", strait_tokenizer_fingerprint(tokenizer));
    strait_tokenizer_close(&tokenizer);
    return STRAIT_OK;
}

/* What the user put into the run's folder stays. */
static strait_err copy_absent(const char *from, const char *run, const char *name) {
    char path[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_file_path(path, "%s/%s", run, name));
    return strait_file_exists(path) ? STRAIT_OK : strait_convert_copy(from, run, name);
}

strait_err strait_init_source_take_tokenizer(const struct strait_init_source *s,
                                             const char *fingerprint, const char *run,
                                             const strait_convert_notes *notes) {
    char from[STRAIT_PATH_MAX], theirs[80], ours[80];
    if (is_hf(s))
        STRAIT_TRY(strait_file_path(from, "%s", strait_hf_folder_path(s->hf.folder)));
    else
        STRAIT_TRY(strait_convert_run_of(s->checkpoint, from));
    STRAIT_TRY(fingerprint_in(from, theirs));
    STRAIT_TRY(fingerprint_in(run, ours));
    if (theirs[0] == '\0') return STRAIT_OK;
    if (fingerprint[0] == '\0') fingerprint = ours;
    if (fingerprint[0] != '\0' && strcmp(fingerprint, theirs) != 0) {
        strait_convert_say(notes,
                           "the data were tokenized with another tokenizer than %s/tokenizer.json: "
                           "the weights know other token ids",
                           from);
        return STRAIT_OK;
    }
    STRAIT_TRY(copy_absent(from, run, "tokenizer.json"));
    for (int i = 0; strait_convert_companions[i] != NULL; i++)
        STRAIT_TRY(copy_absent(from, run, strait_convert_companions[i]));
    return STRAIT_OK;
}
