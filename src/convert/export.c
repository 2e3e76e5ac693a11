/* export.c - from a checkpoint to a folder that transformers loads. */
#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "config/description.h"
#include "convert/export_files.h"
#include "convert/export_list.h"
#include "convert/files.h"
#include "convert/floats.h"
#include "convert/weights_source.h"
#include "data/tokenizer/tokenizer.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t default_shard = 5000000000; // as transformers has it

struct export {
    char out[STRAIT_PATH_MAX];
    char folder[STRAIT_PATH_MAX]; // where files are written until all are complete
    int lock;                     // of that folder
    char run[STRAIT_PATH_MAX];
    strait_convert_notes notes;
    struct strait_checkpoint *checkpoint;
    strait_run_plan plan;
    strait_dtype dtype;
    const char *dtype_name;
    strait_hf_class class;
    struct strait_export_list list;
    struct strait_weights_source source;
    float *values;      // of the largest source
    const char *viewed; // a source that is mapped into memory; NULL: none
    int file;           // that is being written
    int first;          // its first item
    struct {
        pthread_t thread;
        int is_running;
        strait_err err; // STRAIT_OK: the checkpoint is not damaged, or that was known before
        char reason[512];
    } check;
};

static strait_err choose_dtype(struct export *ex, const char *name) {
    static const struct {
        const char *name, *torch;
        strait_dtype dtype;
    } known[] = {{"f32", "float32", STRAIT_F32},
                 {"bf16", "bfloat16", STRAIT_BF16},
                 {"f16", "float16", STRAIT_F16}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i].name) == 0) {
            ex->dtype = known[i].dtype;
            ex->dtype_name = known[i].torch;
            return STRAIT_OK;
        }
    return STRAIT_FAIL(STRAIT_ECONFIG, "dtype \"%.20s\" is not known: expected f32, bf16 or f16",
                       name);
}

/* Where the values of an item's source are: in the checkpoint, or else read into ex->values. */
static strait_err find_values(struct export *ex, const strait_export_item *item,
                              const float **out) {
    const int64_t rows = item->source_rows, cols = item->source_cols;
    if (ex->viewed != NULL) strait_checkpoint_drop_pages(ex->checkpoint, ex->viewed);
    ex->viewed = NULL;
    *out = ex->values;
    if (item->source[0] == '\0') {
        for (int64_t v = 0; v < rows * cols; v++)
            ex->values[v] = 1.0f;
        return STRAIT_OK;
    }
    const float *stored = strait_weights_source_view(&ex->source, item->source, rows, cols);
    if (stored == NULL)
        return strait_weights_source_read(&ex->source, item->source, rows, cols, ex->values);
    ex->viewed = item->source;
    *out = stored;
    return STRAIT_OK;
}

/* Finds one item, in the format of the output, while the disk reads the next one. */
static strait_err load_item(void *user, int i, const void **out) {
    struct export *ex = user;
    const strait_export_item *item = &ex->list.items[ex->first + i];
    const int64_t n = item->rows * item->cols;
    const float *values = NULL;
    STRAIT_TRY(strait_convert_advance(&ex->notes, n * (int64_t)strait_dtype_bytes(ex->dtype)));
    if (ex->first + i + 1 < ex->list.n_items)
        strait_checkpoint_prefetch(ex->checkpoint, item[1].source);
    STRAIT_TRY(find_values(ex, item, &values));
    values += item->first;
    const int64_t bad = strait_floats_overflow(values, ex->dtype, n);
    if (bad >= 0)
        return STRAIT_FAIL(STRAIT_EDATA,
                           "tensor %s: value %lld, %g, does not fit into f16: use "
                           "--dtype bf16",
                           item->name, (long long)bad, (double)values[bad]);
    *out = values;
    if (ex->dtype == STRAIT_F32) return STRAIT_OK;
    strait_floats_narrow((unsigned char *)ex->values, values, ex->dtype, n);
    *out = ex->values;
    return STRAIT_OK;
}

/* Writes one file: the items from ex->first up to the first of the next file. */
static strait_err write_file(struct export *ex, strait_safetensors_item *items) {
    char name[64], path[STRAIT_PATH_MAX];
    int n = 0;
    for (; ex->first + n < ex->list.n_items; n++) {
        const strait_export_item *item = &ex->list.items[ex->first + n];
        if (item->file != ex->file) break;
        items[n] = (strait_safetensors_item){
            item->name, {NULL, ex->dtype, item->rows, item->cols}, .is_vector = item->rows == 1};
    }
    const strait_safetensors_pair metadata[] = {{"format", "pt"}};
    const strait_safetensors_content content = {.items = items,
                                                .n_items = n,
                                                .metadata = metadata,
                                                .n_metadata = 1,
                                                .load = load_item,
                                                .user = ex};
    strait_export_list_file(&ex->list, ex->file, name);
    STRAIT_TRY(strait_file_path(path, "%s/%s", ex->folder, name));
    STRAIT_TRY(strait_safetensors_write(path, &content));
    ex->first += n;
    return STRAIT_OK;
}

/* model.safetensors.index.json, where there are several files. */
static strait_err write_index(const struct export *ex) {
    char name[64], path[STRAIT_PATH_MAX];
    json_int_t total = 0;
    if (ex->list.n_files == 1) return STRAIT_OK;
    json_t *map = json_object();
    for (int i = 0; i < ex->list.n_items; i++) {
        const strait_export_item *item = &ex->list.items[i];
        strait_export_list_file(&ex->list, item->file, name);
        total += item->rows * item->cols * (json_int_t)strait_dtype_bytes(ex->dtype);
        (void)json_object_set_new(map, item->name, json_string(name));
    }
    json_t *index = json_pack("{s:{s:I}, s:o}", "metadata", "total_size", total, "weight_map", map);
    if (index == NULL) return STRAIT_FAIL(STRAIT_ENOMEM, "index of tensors");
    strait_err err = strait_file_path(path, "%s/model.safetensors.index.json", ex->folder);
    if (err == STRAIT_OK) err = strait_json_replace(path, index);
    json_decref(index);
    return err;
}

static strait_err write_weights(struct export *ex, int64_t shard_bytes) {
    strait_safetensors_item *items = NULL;
    int64_t most = 0, values = 0;
    for (int i = 0; i < ex->list.n_items; i++) {
        const int64_t n = ex->list.items[i].source_rows * ex->list.items[i].source_cols;
        if (n > most) most = n;
        values += ex->list.items[i].rows * ex->list.items[i].cols;
    }
    ex->notes.done = 0;
    ex->notes.total = values * (int64_t)strait_dtype_bytes(ex->dtype);
    strait_export_list_split(&ex->list, strait_dtype_bytes(ex->dtype), (size_t)shard_bytes);
    STRAIT_TRY(strait_alloc_unset((size_t)most, sizeof *ex->values, "values of a tensor",
                                  (void **)&ex->values));
    STRAIT_TRY(
        strait_alloc((size_t)ex->list.n_items, sizeof *items, "list of tensors", (void **)&items));
    strait_err err = STRAIT_OK;
    for (ex->file = 0; ex->file < ex->list.n_files && err == STRAIT_OK; ex->file++)
        err = write_file(ex, items);
    strait_alloc_free(items);
    return err == STRAIT_OK ? write_index(ex) : err;
}

/* Copies the tokenizer and its companions and finds the token that ends a text. */
static strait_err copy_tokenizer(struct export *ex, strait_export_about *about, char end[64]) {
    char path[STRAIT_PATH_MAX];
    struct strait_tokenizer *tokenizer = NULL;
    about->end_id = -1;
    STRAIT_TRY(strait_file_path(path, "%s/tokenizer.json", ex->run));
    if (!strait_file_exists(path)) {
        strait_convert_say(&ex->notes, "%s has no tokenizer.json: the export has none", ex->run);
        return STRAIT_OK;
    }
    STRAIT_TRY(strait_tokenizer_open(path, &tokenizer));
    about->has_tokenizer = 1;
    about->end_id = strait_tokenizer_end(tokenizer);
    if (about->end_id >= 0) {
        size_t n = 0;
        const unsigned char *bytes = strait_tokenizer_bytes(tokenizer, about->end_id, &n);
        (void)snprintf(end, 64, "%.*s", (int)(n < 63 ? n : 63), (const char *)bytes);
        about->end = end;
    }
    strait_tokenizer_close(&tokenizer);
    STRAIT_TRY(strait_convert_copy(ex->run, ex->folder, "tokenizer.json"));
    for (int i = 0; strait_convert_companions[i] != NULL; i++)
        STRAIT_TRY(strait_convert_copy(ex->run, ex->folder, strait_convert_companions[i]));
    return STRAIT_OK;
}

static strait_err write_others(struct export *ex) {
    char end[64];
    strait_export_about about = {.checkpoint = ex->checkpoint,
                                 .plan = &ex->plan,
                                 .class = ex->class,
                                 .dtype = ex->dtype_name,
                                 .run = ex->run};
    STRAIT_TRY(copy_tokenizer(ex, &about, end));
    STRAIT_TRY(strait_export_config(&about, ex->folder));
    STRAIT_TRY(strait_export_companions(&about, ex->folder));
    if (ex->class == STRAIT_HF_STRAIT) STRAIT_TRY(strait_export_remote_code(ex->folder));
    return strait_export_card(&about, ex->folder);
}

/* ---- checking the checkpoint meanwhile ---- */

/* What the export reads: weights, and for coordinates the state that their basis is in. */
static void *check(void *arg) {
    struct export *ex = arg;
    ex->check.err = strait_checkpoint_check(ex->checkpoint, ex->plan.shape.subspace > 0);
    (void)snprintf(ex->check.reason, sizeof ex->check.reason, "%s", strait_err_detail());
    return NULL;
}

/* Hashing and converting both take as long as the disk reads; together they read once. */
static void begin_check(struct export *ex) {
    ex->check.is_running = pthread_create(&ex->check.thread, NULL, check, ex) == 0;
    if (!ex->check.is_running) (void)check(ex);
}

/* Waits for the check. Returns its error, or else `err`. */
static strait_err end_check(struct export *ex, strait_err err) {
    if (ex->check.is_running) (void)pthread_join(ex->check.thread, NULL);
    ex->check.is_running = 0;
    if (ex->check.err == STRAIT_OK) return err;
    return STRAIT_FAIL(ex->check.err, "%s", ex->check.reason);
}

/* ---- the whole export ---- */

static strait_err write_all(struct export *ex, const strait_export_params *params) {
    STRAIT_TRY(strait_convert_run_of(ex->checkpoint, ex->run));
    ex->class = strait_export_class(&ex->plan);
    if (ex->plan.n_stages > 1 && ex->class != STRAIT_HF_STRAIT)
        strait_convert_say(&ex->notes,
                           "the model is exported without its codec, %s: eval and "
                           "generate round activations at boundaries, the export does not",
                           ex->plan.codec.name);
    STRAIT_TRY(strait_export_list_init(ex->checkpoint, &ex->plan, ex->class, &ex->list));
    STRAIT_TRY(strait_weights_source_open(ex->checkpoint, &ex->plan, &ex->source));
    STRAIT_TRY(strait_convert_begin(ex->out, ex->folder, &ex->lock));
    STRAIT_TRY(write_others(ex));
    STRAIT_TRY(write_weights(ex, params->shard_bytes > 0 ? params->shard_bytes : default_shard));
    return strait_file_sync_folder(ex->folder);
}

/* With is_known the newest undamaged checkpoint is searched before. Otherwise the newest one is
 * checked while it is converted: STRAIT_EDATA if it is damaged, and nothing remains. */
static strait_err convert(struct export *ex, const char *run, const strait_export_params *params,
                          int is_known) {
    STRAIT_TRY(is_known
                   ? strait_checkpoint_open(run, STRAIT_CHECKPOINT_NEWEST_VALID, &ex->checkpoint)
                   : strait_checkpoint_open_unchecked(run, &ex->checkpoint));
    STRAIT_TRY(strait_describe_read(ex->checkpoint, &ex->plan));
    const char *skipped = strait_checkpoint_skipped(ex->checkpoint);
    if (skipped != NULL) strait_convert_say(&ex->notes, "%s", skipped);
    if (!is_known) begin_check(ex);
    STRAIT_TRY(end_check(ex, write_all(ex, params)));
    STRAIT_TRY(strait_convert_finish(ex->folder, ex->out, &ex->lock));
    strait_convert_say(&ex->notes, "%s: %d tensors of %s in %d file%s, step %lld", ex->out,
                       ex->list.n_items, strait_hf_class_architecture(ex->class), ex->list.n_files,
                       ex->list.n_files == 1 ? "" : "s",
                       (long long)strait_checkpoint_step(ex->checkpoint));
    return STRAIT_OK;
}

/* Leaves what the next attempt needs. */
static void close_attempt(struct export *ex) {
    strait_weights_source_close(&ex->source);
    strait_export_list_fini(&ex->list);
    strait_checkpoint_close(&ex->checkpoint);
    strait_alloc_free(ex->values);
    ex->values = NULL;
    ex->viewed = NULL;
    ex->first = 0;
    ex->check.err = STRAIT_OK;
}

strait_err strait_export_hf(const char *run, const char *out, const strait_export_params *params,
                            strait_convert_note note, void *user) {
    static const strait_export_params none = {0};
    struct export *ex = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *ex, "export", (void **)&ex));
    if (params == NULL) params = &none;
    ex->notes = (strait_convert_notes){.note = note, .user = user, .progress = params->progress};
    strait_err err = strait_convert_target(out, "folder", ex->out);
    if (err == STRAIT_OK) err = choose_dtype(ex, params->dtype != NULL ? params->dtype : "f32");
    if (err == STRAIT_OK) err = convert(ex, run, params, 0);
    /* Perhaps an older one is whole; if not, the error says more. */
    if (err == STRAIT_EDATA && (ex->checkpoint == NULL || ex->check.err != STRAIT_OK)) {
        close_attempt(ex);
        err = convert(ex, run, params, 1);
    }
    if (err != STRAIT_OK && ex->folder[0] != '\0') strait_convert_discard(ex->folder);
    strait_file_unlock(&ex->lock);
    close_attempt(ex);
    strait_alloc_free(ex);
    return err;
}
