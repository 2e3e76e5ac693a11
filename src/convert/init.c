#include "convert/init.h"

#include "base/alloc.h"
#include "base/digest/hash.h"
#include "base/file.h"
#include "config/description.h"
#include "convert/init_source.h"
#include "convert/init_subspace.h"

#include <stdio.h>
#include <string.h>

enum {
    FILES_MAX = 2 * STRAIT_RUN_STAGES,
    SHOWN = 6 // names in a note
};

/* One tensor of the new checkpoint. */
struct entry {
    const strait_safetensor *initial;
    int from;                    // its index in the source; -1: it stays new
    const unsigned char *stored; // the source's values as they are, if they are taken so
};

struct init {
    const char *run, *source_path;
    const strait_convert_notes *notes;
    struct strait_checkpoint *initial;
    strait_run_plan plan;
    struct strait_init_source source;
    int has_same_codec; // source and run have one cut and one codec
    int is_confined;    // to a subspace, the same in both
    unsigned char *is_used;
    int n_source, n_taken;
    struct entry *entries;                 // of the file that is being written
    const struct strait_safetensors *file; // that they are in
    const char *mapped;                    // the tensor of it that was written last; may be NULL
    float *values;
    char hashes[FILES_MAX][STRAIT_HASH_TEXT]; // of the files that were written
    char fresh[256], left[256];               // names, for the note
    int n_fresh, n_left;
};

/* Adds a name to a list in a note, as long as there is space. */
static void mention(char list[256], int *n, const char *name) {
    const size_t used = strlen(list);
    if ((*n)++ < SHOWN)
        (void)snprintf(list + used, 256 - used, "%s%.40s", used > 0 ? ", " : "", name);
    if (*n == SHOWN + 1) {
        const size_t now = strlen(list);
        (void)snprintf(list + now, 256 - now, ", ...");
    }
}

/* Whether a tensor belongs to a boundary rather than to the model. */
static int is_of_cut(const char *name) {
    const char *dot = strrchr(name, '.');
    return strncmp(name, "boundary.", 9) == 0 ||
           (dot != NULL && (strcmp(dot, ".enc") == 0 || strcmp(dot, ".dec") == 0));
}

/* The same split and codec: then their tensors mean the same. */
static int same_codec(const struct init *in) {
    const strait_run_plan *a = &in->plan, *b = &in->source.plan;
    if (in->source.checkpoint == NULL || a->n_stages != b->n_stages) return 0;
    for (int i = 0; i < a->n_stages; i++)
        if (a->stage_layers[i].last != b->stage_layers[i].last) return 0;
    return strcmp(a->codec.name, b->codec.name) == 0 &&
           strcmp(a->codec.variant, b->codec.variant) == 0;
}

/* Coordinates of the run's own subspace are taken as they are. */
static int is_stored_so(const struct init *in, int i, const strait_safetensor *t) {
    const strait_safetensor *stored = strait_init_source_stored(&in->source, i);
    return in->is_confined && stored != NULL && stored->n_dims == t->n_dims &&
           stored->bytes == t->bytes && strcmp(stored->dtype, t->dtype) == 0 &&
           memcmp(stored->dims, t->dims, (size_t)t->n_dims * sizeof *t->dims) == 0;
}

/* Where the values of a weight come from. */
static struct entry find(const struct init *in, const strait_safetensor *t) {
    const int64_t t_rows = t->n_dims > 1 ? t->dims[0] : 1, t_cols = t->dims[t->n_dims - 1];
    const char *name = NULL;
    int64_t rows = 0, cols = 0;
    struct entry entry = {t, -1, NULL};
    if (is_of_cut(t->name) && !in->has_same_codec) return entry;
    for (int i = 0; strait_init_source_at(&in->source, i, &name, &rows, &cols); i++) {
        if (strcmp(name, t->name) != 0) continue;
        if (is_stored_so(in, i, t)) entry.stored = strait_init_source_stored(&in->source, i)->data;
        if (entry.stored != NULL || (rows == t_rows && cols == t_cols)) entry.from = i;
        break;
    }
    return entry;
}

/* Called by the writer for one tensor after the other. */
static strait_err load(void *user, int i, const void **out) {
    struct init *in = user;
    const struct entry *entry = &in->entries[i];
    if (in->mapped != NULL) strait_safetensors_drop_pages(in->file, in->mapped);
    in->mapped = entry->initial->name;
    if (entry->stored != NULL || entry->from < 0) {
        *out = entry->stored != NULL ? entry->stored : entry->initial->data;
        return STRAIT_OK;
    }
    STRAIT_TRY(strait_init_source_read(&in->source, entry->from, in->values));
    *out = in->values;
    return STRAIT_OK;
}

/* Chooses for a weight where its values come from. */
static strait_err choose_weight(struct init *in, const strait_safetensor *t, struct entry *out) {
    *out = find(in, t);
    if (in->is_confined)
        STRAIT_TRY(
            strait_init_check_confined(&in->plan, &in->source, t->name, out->stored != NULL));
    if (out->from < 0) mention(in->fresh, &in->n_fresh, t->name);
    if (out->from >= 0) in->is_used[out->from] = 1;
    in->n_taken += out->from >= 0;
    return STRAIT_OK;
}

/* Moments and the state of codecs begin anew, except for the basis that the weights are in. */
static struct entry choose_state(const struct init *in, const strait_safetensor *t) {
    return (struct entry){t, -1, in->is_confined ? strait_init_find_basis(&in->source, t) : NULL};
}

/* Whether a tensor is of an outer step (train.outer): without it, every replica begins with the
 * weights. */
static int is_of_outer(const char *name) {
    return strncmp(name, "replica.", 8) == 0 || strncmp(name, "outer.", 6) == 0;
}

/* Chooses for each tensor of a file where its values come from; *n: how many there are. */
static strait_err choose(struct init *in, const struct strait_safetensors *file, int is_state,
                         strait_safetensors_item *items, int *n) {
    *n = 0;
    for (int i = 0; i < strait_safetensors_count(file); i++) {
        const strait_safetensor *t = strait_safetensors_at(file, i);
        const int is_vector = t->n_dims < 2, is_int = strcmp(t->dtype, "I32") == 0; // of counters
        if (is_state && is_of_outer(t->name)) continue;
        items[*n] = (strait_safetensors_item){t->name,
                                              {NULL, is_int ? STRAIT_I32 : STRAIT_F32,
                                               is_vector ? 1 : t->dims[0], t->dims[t->n_dims - 1]},
                                              is_vector};
        if (is_state)
            in->entries[*n] = choose_state(in, t);
        else
            STRAIT_TRY(choose_weight(in, t, &in->entries[*n]));
        (*n)++;
    }
    return STRAIT_OK;
}

static strait_err write_one(struct init *in, const struct strait_safetensors *file,
                            const strait_checkpoint_stage_file *as) {
    int n = strait_safetensors_count(file);
    strait_safetensors_item *items = NULL;
    STRAIT_TRY(strait_alloc((size_t)n, sizeof *items, "list of tensors", (void **)&items));
    strait_err err = strait_alloc((size_t)n, sizeof *in->entries, "list of tensors",
                                  (void **)&in->entries);
    if (err == STRAIT_OK) err = choose(in, file, as->is_state, items, &n);
    if (err == STRAIT_OK) {
        strait_checkpoint_stage_file filled = *as;
        filled.items = items;
        filled.n_items = n;
        filled.load = load;
        in->file = file;
        in->mapped = NULL;
        filled.user = in;
        err = strait_checkpoint_write(in->run, 0, &filled);
    }
    strait_alloc_free(in->entries);
    in->entries = NULL;
    strait_alloc_free(items);
    return err;
}

/* Writes every file of the initial checkpoint again, but those of further replicas that train on
 * their own; `files` then lists them. */
static strait_err write_files(struct init *in, strait_checkpoint_stage_file files[FILES_MAX],
                              int *n) {
    const struct strait_safetensors *file = NULL;
    const char *name = NULL;
    *n = 0;
    for (int i = 0; (file = strait_checkpoint_file(in->initial, i, &name)) != NULL; i++) {
        if (strstr(name, ".replica-") != NULL) continue;
        int stage = 0;
        if (*n == FILES_MAX || sscanf(name, "stage-%d", &stage) != 1) // NOLINT(cert-err34-c)
            return STRAIT_FAIL(STRAIT_EDATA, "%s: unexpected file in a checkpoint", name);
        strait_checkpoint_stage_file *as = &files[*n];
        *as = (strait_checkpoint_stage_file){
            .stage = stage, .is_state = strstr(name, ".state.") != NULL, .hash = in->hashes[*n]};
        STRAIT_TRY(write_one(in, file, as));
        (*n)++;
    }
    return STRAIT_OK;
}

static void report(struct init *in) {
    const char *name = NULL;
    int64_t rows = 0, cols = 0;
    for (int i = 0; strait_init_source_at(&in->source, i, &name, &rows, &cols); i++)
        if (!in->is_used[i] && name[0] != '\0') mention(in->left, &in->n_left, name);
    strait_convert_say(in->notes,
                       "weights from %s: %d tensors taken, %d new%s%s%s, %d left over%s%s%s",
                       in->source_path, in->n_taken, in->n_fresh, in->n_fresh > 0 ? " (" : "",
                       in->fresh, in->n_fresh > 0 ? ")" : "", in->n_left,
                       in->n_left > 0 ? " (" : "", in->left, in->n_left > 0 ? ")" : "");
}

static strait_err save(struct init *in) {
    strait_checkpoint_stage_file files[FILES_MAX];
    strait_description *description = NULL;
    int n = 0;
    STRAIT_TRY(strait_checkpoint_begin(in->run, 0));
    STRAIT_TRY(write_files(in, files, &n));
    if (in->n_taken == 0)
        return STRAIT_FAIL(STRAIT_EDATA,
                           "train.init_from %s: no tensor has the name and shape of one of this "
                           "model: compare the options of the two models",
                           in->source_path);
    STRAIT_TRY(strait_alloc(1, sizeof *description, "description", (void **)&description));
    strait_describe(&in->plan, description);
    const strait_checkpoint_plan plan = {.tokenizer = strait_checkpoint_tokenizer(in->initial),
                                         .model = description->pairs,
                                         .n_model = description->n,
                                         .files = files,
                                         .n_files = n,
                                         .keep = 1};
    const strait_err err = strait_checkpoint_commit(in->run, &plan);
    strait_alloc_free(description);
    STRAIT_TRY(err);
    report(in);
    return strait_init_source_take_tokenizer(&in->source, strait_checkpoint_tokenizer(in->initial),
                                             in->run, in->notes);
}

/* Space for the largest tensor, and a mark for each. */
static strait_err reserve(struct init *in) {
    const char *name = NULL;
    int64_t rows = 0, cols = 0, most = 1;
    for (; strait_init_source_at(&in->source, in->n_source, &name, &rows, &cols); in->n_source++)
        if (rows * cols > most) most = rows * cols;
    STRAIT_TRY(strait_alloc((size_t)in->n_source + 1, 1, "marks", (void **)&in->is_used));
    return strait_alloc_unset((size_t)most, sizeof *in->values, "values of a tensor",
                              (void **)&in->values);
}

static strait_err write_step(struct init *in, const char *initial) {
    STRAIT_TRY(strait_checkpoint_open(initial, STRAIT_CHECKPOINT_NEWEST, &in->initial));
    STRAIT_TRY(strait_describe_read(in->initial, &in->plan));
    STRAIT_TRY(strait_init_source_open(in->source_path, &in->source));
    in->is_confined = strait_init_is_confined(&in->plan);
    if (in->is_confined) STRAIT_TRY(strait_init_check_subspace(&in->plan, &in->source));
    in->has_same_codec = same_codec(in);
    STRAIT_TRY(reserve(in));
    const strait_err err = save(in);
    if (err != STRAIT_OK) strait_convert_discard_step(in->run);
    return err;
}

strait_err strait_init_write(const char *initial, const char *source, const char *run,
                             const strait_convert_notes *notes) {
    struct init *in = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *in, "initial weights", (void **)&in));
    in->run = run;
    in->source_path = source;
    in->notes = notes;
    const strait_err err = write_step(in, initial);
    strait_init_source_close(&in->source);
    strait_checkpoint_close(&in->initial);
    strait_alloc_free(in->is_used);
    strait_alloc_free(in->values);
    strait_alloc_free(in);
    return err;
}

void strait_init_discard(const char *initial) {
    strait_convert_discard(initial);
}
