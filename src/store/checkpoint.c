#include "store/checkpoint.h"

#include "base/alloc.h"
#include "base/digest/hash.h"
#include "base/json.h"
#include "store/checkpoint_folder.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum {
    MANIFEST_MAX = 16 << 20,
    SKIPPED_MAX = 512
};

struct strait_checkpoint {
    char path[STRAIT_PATH_MAX];
    json_t *manifest;
    int64_t step;
    const char *tokenizer;              // in the manifest
    const json_t *model;                // in the manifest
    const json_t *files;                // in the manifest
    struct strait_safetensors **opened; // as many as files
    int n_files;
    char skipped[2 * SKIPPED_MAX];
};

/* Whether a name from a manifest is a plain file name. A manifest may come from elsewhere: it must
 * not make us open files outside its own folder. */
static int is_plain_name(const char *name) {
    return name[0] != '\0' && name[0] != '.' && strchr(name, '/') == NULL;
}

/* A file as the manifest lists it. */
struct listed {
    const char *name, *hash;
    int64_t bytes;
    char path[STRAIT_PATH_MAX];
};

static strait_err read_listed(const struct strait_checkpoint *c, int i, struct listed *out) {
    const json_t *entry = json_array_get(c->files, (size_t)i);
    STRAIT_TRY(strait_json_string(entry, "name", &out->name));
    STRAIT_TRY(strait_json_string(entry, "hash", &out->hash));
    STRAIT_TRY(strait_json_int(entry, "bytes", &out->bytes));
    if (!is_plain_name(out->name))
        return STRAIT_FAIL(STRAIT_EDATA, "\"%.80s\" is not a file of this folder", out->name);
    return strait_file_path(out->path, "%s/%s", c->path, out->name);
}

static strait_err fail_unreadable(const char *name) {
    return STRAIT_FAIL(STRAIT_EDATA, "%s is missing or cannot be read", name);
}

/* The size is compared before the hash, because a truncated file is the most frequent damage and
 * its message says more. */
static strait_err check_size(const struct listed *file) {
    struct stat info;
    if (stat(file->path, &info) != 0) return fail_unreadable(file->name);
    if ((int64_t)info.st_size == file->bytes) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EDATA, "%s has %lld bytes instead of %lld", file->name,
                       (long long)info.st_size, (long long)file->bytes);
}

static strait_err check_hash(const struct listed *file) {
    char found[STRAIT_HASH_TEXT];
    if (strait_hash_file(file->path, found) != STRAIT_OK) return fail_unreadable(file->name);
    if (strcmp(found, file->hash) == 0) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EDATA, "%s has changed since it was written (hash %s, not %.40s)",
                       file->name, found, file->hash);
}

/* Checks the size and, if that is wanted, the hash of a file, then opens it. The caller adds the
 * path to an error. */
static strait_err open_file(struct strait_checkpoint *c, int i, int is_hashed) {
    struct listed file;
    STRAIT_TRY(read_listed(c, i, &file));
    STRAIT_TRY(check_size(&file));
    if (is_hashed) STRAIT_TRY(check_hash(&file));
    return strait_safetensors_open(file.path, &c->opened[i]);
}

strait_err strait_checkpoint_check(const struct strait_checkpoint *c, int with_state) {
    for (int i = 0; i < c->n_files; i++) {
        struct listed file;
        STRAIT_TRY(read_listed(c, i, &file));
        if (strstr(file.name, ".state.") != NULL && !with_state) continue;
        const strait_err err = check_hash(&file);
        if (err != STRAIT_OK) strait_err_prefix("%s", c->path);
        STRAIT_TRY(err);
    }
    return STRAIT_OK;
}

/* Checks format and step. The manifest has no hash of its own, so the folder's name, which holds
 * the step, guards against a manifest copied from another checkpoint. */
static strait_err check_head(const struct strait_checkpoint *c) {
    int64_t format = 0;
    STRAIT_TRY(strait_json_int(c->manifest, "format", &format));
    if (format != STRAIT_CHECKPOINT_FORMAT)
        return STRAIT_FAIL(STRAIT_EDATA,
                           "format %lld is not supported; this version reads format %d",
                           (long long)format, STRAIT_CHECKPOINT_FORMAT);
    const int64_t named = strait_checkpoint_step_of(c->path);
    if (c->step < 0 || (named >= 0 && named != c->step))
        return STRAIT_FAIL(STRAIT_EDATA, "\"step\" %lld is not the step in the folder's name",
                           (long long)c->step);
    return STRAIT_OK;
}

static strait_err read_manifest(struct strait_checkpoint *c) {
    STRAIT_TRY(strait_json_int(c->manifest, "step", &c->step));
    STRAIT_TRY(check_head(c));
    STRAIT_TRY(strait_json_string(c->manifest, "tokenizer", &c->tokenizer));
    STRAIT_TRY(strait_json_object(c->manifest, "model", &c->model));
    STRAIT_TRY(strait_json_array(c->manifest, "files", &c->files));
    void *memory = NULL;
    const size_t n = json_array_size(c->files);
    STRAIT_TRY(strait_alloc(n, sizeof(struct strait_safetensors *), "checkpoint", &memory));
    c->opened = memory;
    c->n_files = (int)n;
    return STRAIT_OK;
}

/* Opens the checkpoint in `path`. The message of STRAIT_EDATA starts with the path. */
static strait_err open_folder(const char *path, int is_hashed, struct strait_checkpoint **out) {
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(struct strait_checkpoint), "checkpoint", &memory));
    struct strait_checkpoint *c = memory;
    char manifest[STRAIT_PATH_MAX];
    strait_err err = strait_file_path(c->path, "%s", path);
    for (size_t n = strlen(c->path); n > 1 && c->path[n - 1] == '/'; n--)
        c->path[n - 1] = '\0'; // as completion in a shell ends it
    if (err == STRAIT_OK) err = strait_file_path(manifest, "%s/manifest.json", path);
    if (err == STRAIT_OK && !strait_file_exists(manifest))
        err = STRAIT_FAIL(STRAIT_EDATA, "%s: has no manifest.json", path);
    if (err == STRAIT_OK) err = strait_json_load(manifest, MANIFEST_MAX, &c->manifest);
    if (err == STRAIT_OK) {
        err = read_manifest(c);
        if (err != STRAIT_OK) strait_err_prefix("%s", manifest);
    }
    for (int i = 0; err == STRAIT_OK && i < c->n_files; i++) {
        err = open_file(c, i, is_hashed);
        if (err != STRAIT_OK) strait_err_prefix("%s", path);
    }
    if (err != STRAIT_OK)
        strait_checkpoint_close(&c);
    else
        *out = c;
    return err;
}

/* Tries checkpoints from the newest to the oldest until one is undamaged, collecting the reasons.
 */
static strait_err open_newest(const char *run_folder, const int64_t *steps, int n,
                              strait_checkpoint_choice choice, struct strait_checkpoint **out) {
    char skipped[SKIPPED_MAX] = "";
    for (int i = n - 1; i >= 0; i--) {
        char path[STRAIT_PATH_MAX];
        STRAIT_TRY(strait_checkpoint_folder(run_folder, steps[i], "", path));
        const strait_err err = open_folder(path, 1, out);
        if (err == STRAIT_OK && skipped[0] != '\0')
            (void)snprintf((*out)->skipped, sizeof(*out)->skipped,
                           "using step %lld, the newest undamaged checkpoint: %s",
                           (long long)steps[i], skipped);
        if (err != STRAIT_EDATA || choice == STRAIT_CHECKPOINT_NEWEST) return err;
        const size_t used = strlen(skipped);
        (void)snprintf(skipped + used, sizeof skipped - used, "%s%s", used > 0 ? "; " : "",
                       strait_err_detail());
    }
    return STRAIT_FAIL(STRAIT_EDATA, "every checkpoint of %s is damaged: %.300s", run_folder,
                       skipped);
}

/* The newest step in a run, or -1 if it has no checkpoint. */
static int64_t newest_of(const char *folder) {
    int64_t *steps = NULL;
    int n = 0;
    if (strait_checkpoint_list(folder, &steps, &n) != STRAIT_OK) return -1;
    const int64_t newest = n > 0 ? steps[n - 1] : -1;
    strait_alloc_free(steps);
    return newest;
}

/* Says what a folder without checkpoints may be. */
static strait_err no_checkpoint(const char *folder) {
    char config[STRAIT_PATH_MAX];
    if (!strait_file_exists(folder)) return STRAIT_FAIL(STRAIT_EDATA, "%s: no such folder", folder);
    STRAIT_TRY(strait_file_path(config, "%s/config.json", folder));
    if (strait_file_exists(config))
        return STRAIT_FAIL(STRAIT_EDATA,
                           "%s: contains no checkpoint, but a config.json as models of Hugging "
                           "Face do: import it first (strait import %s --out RUN)",
                           folder, folder);
    return STRAIT_FAIL(STRAIT_EDATA,
                       "%s: contains no checkpoint; name the folder of a run that has saved one",
                       folder);
}

/* Writes the newest step it has seen even on error, so that the caller can tell whether trying
 * again makes sense. */
static strait_err open_listed(const char *folder, strait_checkpoint_choice choice, int64_t *newest,
                              struct strait_checkpoint **out) {
    int64_t *steps = NULL;
    int n = 0;
    STRAIT_TRY(strait_checkpoint_list(folder, &steps, &n));
    *newest = n > 0 ? steps[n - 1] : -1;
    const strait_err err = n == 0 ? no_checkpoint(folder)
                                  : open_newest(folder, steps, n, choice, out);
    strait_alloc_free(steps);
    return err;
}

strait_err strait_checkpoint_open(const char *folder, strait_checkpoint_choice choice,
                                  struct strait_checkpoint **out) {
    char manifest[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_file_path(manifest, "%s/manifest.json", folder));
    if (strait_file_exists(manifest)) return open_folder(folder, 1, out);
    if (strait_file_exists(folder) && !strait_file_is_folder(folder))
        return STRAIT_FAIL(STRAIT_EDATA,
                           "%s: not a folder; name the folder of a run or of a checkpoint", folder);
    int64_t newest = -1;
    strait_err err;
    do { // a running job may delete a checkpoint after we listed it; retry if it has saved a newer
         // one
        err = open_listed(folder, choice, &newest, out);
    } while (err == STRAIT_EDATA && newest_of(folder) > newest);
    return err;
}

strait_err strait_checkpoint_open_unchecked(const char *folder, struct strait_checkpoint **out) {
    char manifest[STRAIT_PATH_MAX], path[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_file_path(manifest, "%s/manifest.json", folder));
    if (strait_file_exists(manifest)) return open_folder(folder, 0, out);
    STRAIT_TRY(strait_checkpoint_folder(folder, newest_of(folder), "", path));
    return open_folder(path, 0, out);
}

strait_err strait_checkpoint_open_valid(void *request) {
    strait_checkpoint_request *r = request;
    return strait_checkpoint_open(r->folder, STRAIT_CHECKPOINT_NEWEST_VALID, &r->checkpoint);
}

void strait_checkpoint_close(struct strait_checkpoint **checkpoint) {
    struct strait_checkpoint *c = *checkpoint;
    if (c == NULL) return;
    for (int i = 0; i < c->n_files; i++)
        strait_safetensors_close(&c->opened[i]);
    strait_alloc_free(c->opened);
    json_decref(c->manifest);
    strait_alloc_free(c);
    *checkpoint = NULL;
}

const char *strait_checkpoint_path(const struct strait_checkpoint *checkpoint) {
    return checkpoint->path;
}

int64_t strait_checkpoint_step(const struct strait_checkpoint *checkpoint) {
    return checkpoint->step;
}

const char *strait_checkpoint_tokenizer(const struct strait_checkpoint *checkpoint) {
    return checkpoint->tokenizer;
}

const char *strait_checkpoint_skipped(const struct strait_checkpoint *checkpoint) {
    return checkpoint->skipped[0] != '\0' ? checkpoint->skipped : NULL;
}

/* Properties are text, so that a newer version can add some without a new format. */
const char *strait_checkpoint_model(const struct strait_checkpoint *checkpoint, const char *key) {
    return json_string_value(json_object_get(checkpoint->model, key));
}

const struct strait_safetensors *strait_checkpoint_file(const struct strait_checkpoint *checkpoint,
                                                        int i, const char **out_name) {
    if (i >= checkpoint->n_files) return NULL;
    const json_t *entry = json_array_get(checkpoint->files, (size_t)i);
    if (out_name != NULL) *out_name = json_string_value(json_object_get(entry, "name"));
    return checkpoint->opened[i];
}

/* The file that has the tensor, or NULL. */
static const struct strait_safetensors *find(const struct strait_checkpoint *checkpoint,
                                             const char *name) {
    for (int i = 0; i < checkpoint->n_files; i++)
        if (strait_safetensors_find(checkpoint->opened[i], name) != NULL)
            return checkpoint->opened[i];
    return NULL;
}

/* A missing tensor almost always means that options changed between two runs. */
static strait_err fail_missing(const struct strait_checkpoint *checkpoint, const char *name) {
    return STRAIT_FAIL(
        STRAIT_EDATA,
        "%s: tensor \"%.80s\" is missing; was it saved with another model, optimizer "
        "or codec?",
        checkpoint->path, name);
}

strait_err strait_checkpoint_read(const struct strait_checkpoint *checkpoint, const char *name,
                                  strait_tensor into) {
    const struct strait_safetensors *file = find(checkpoint, name);
    return file != NULL ? strait_safetensors_read(file, name, into)
                        : fail_missing(checkpoint, name);
}

int strait_checkpoint_has(const struct strait_checkpoint *checkpoint, const char *name) {
    return find(checkpoint, name) != NULL;
}

strait_err strait_checkpoint_view(const struct strait_checkpoint *checkpoint, const char *name,
                                  strait_tensor shape, const unsigned char **out) {
    const struct strait_safetensors *file = find(checkpoint, name);
    return file != NULL ? strait_safetensors_view(file, name, shape, out)
                        : fail_missing(checkpoint, name);
}

void strait_checkpoint_drop_pages(const struct strait_checkpoint *checkpoint, const char *name) {
    const struct strait_safetensors *file = find(checkpoint, name);
    if (file != NULL) strait_safetensors_drop_pages(file, name);
}

void strait_checkpoint_prefetch(const struct strait_checkpoint *checkpoint, const char *name) {
    const struct strait_safetensors *file = find(checkpoint, name);
    if (file != NULL) strait_safetensors_prefetch(file, name);
}
