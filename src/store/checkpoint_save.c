/* checkpoint_save.c - writing checkpoints so that a crash at any point leaves a complete one.
 *
 * The order is: write files into STEP.tmp, sync each, write and sync the manifest, rename STEP.tmp
 * to STEP, sync the parent folder, and only then remove older checkpoints. */
#include "base/alloc.h"
#include "base/digest/hash.h"
#include "base/json.h"
#include "store/checkpoint.h"
#include "store/checkpoint_folder.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* The name of a file: "stage-0.safetensors", "stage-0.state.safetensors" or
 * "stage-0.replica-1.state.safetensors". */
static void name_file(const strait_checkpoint_stage_file *file, char out[64]) {
    char replica[24] = "";
    if (file->replica > 0) (void)snprintf(replica, sizeof replica, ".replica-%d", file->replica);
    (void)snprintf(out, 64, "stage-%d%s%s.safetensors", file->stage, replica,
                   file->is_state ? ".state" : "");
}

strait_err strait_checkpoint_write(const char *run_folder, int64_t step,
                                   const strait_checkpoint_stage_file *file) {
    char name[64];
    char folder[STRAIT_PATH_MAX];
    char path[STRAIT_PATH_MAX];
    char digits[24];
    name_file(file, name);
    (void)snprintf(digits, sizeof digits, "%lld", (long long)step);
    STRAIT_TRY(strait_checkpoint_folder(run_folder, step, ".tmp", folder));
    STRAIT_TRY(strait_file_path(path, "%s/%s", folder, name));
    const strait_safetensors_pair metadata[] = {{"format", "pt"}, {"step", digits}};
    const strait_safetensors_content content = {.items = file->items,
                                                .n_items = file->n_items,
                                                .metadata = metadata,
                                                .n_metadata = 2,
                                                .load = file->load,
                                                .user = file->user,
                                                .hash = file->hash};
    return strait_safetensors_write(path, &content);
}

/* Appends the manifest's entry for a file that was written to the folder. */
static strait_err list_file(const char *folder, const strait_checkpoint_stage_file *file,
                            json_t *files) {
    char name[64];
    char path[STRAIT_PATH_MAX];
    char hash[STRAIT_HASH_TEXT];
    struct stat info;
    name_file(file, name);
    STRAIT_TRY(strait_file_path(path, "%s/%s", folder, name));
    if (stat(path, &info) != 0)
        return STRAIT_FAIL(STRAIT_EIO, "%s: was deleted while the checkpoint was being saved",
                           path);
    if (file->hash == NULL) STRAIT_TRY(strait_hash_file(path, hash));
    json_t *entry = json_pack("{s:s, s:I, s:s}", "name", name, "bytes", (json_int_t)info.st_size,
                              "hash", file->hash != NULL ? file->hash : hash);
    if (json_array_append_new(files, entry) != 0)
        return STRAIT_FAIL(STRAIT_ENOMEM, "manifest.json: %s", name);
    return STRAIT_OK;
}

/* The manifest without its files; NULL if memory runs out or a text is not UTF-8. */
static json_t *describe(const strait_checkpoint_plan *plan) {
    json_t *model = json_object();
    for (int i = 0; i < plan->n_model; i++)
        if (json_object_set_new(model, plan->model[i].key, json_string(plan->model[i].value)) !=
            0) {
            json_decref(model);
            return NULL;
        }
    return json_pack("{s:i, s:I, s:o, s:s, s:[]}", "format", STRAIT_CHECKPOINT_FORMAT, "step",
                     (json_int_t)plan->step, "model", model, "tokenizer", plan->tokenizer, "files");
}

static strait_err fill(const char *folder, const strait_checkpoint_plan *plan, json_t *manifest) {
    for (int i = 0; i < plan->n_files; i++)
        STRAIT_TRY(list_file(folder, &plan->files[i], json_object_get(manifest, "files")));
    char path[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_file_path(path, "%s/manifest.json", folder));
    STRAIT_TRY(strait_json_replace(path, manifest));
    return strait_file_sync_folder(folder);
}

static strait_err write_manifest(const char *folder, const strait_checkpoint_plan *plan) {
    json_t *manifest = describe(plan);
    if (manifest == NULL)
        return STRAIT_FAIL(STRAIT_EINVAL,
                           "%s/manifest.json: the model description is not valid UTF-8", folder);
    const strait_err err = fill(folder, plan, manifest);
    json_decref(manifest);
    return err;
}

/* Both paths are in one folder, so a rename is atomic and never copies. */
static strait_err move(const char *from, const char *to) {
    if (rename(from, to) == 0) return STRAIT_OK;
    char why[128] = "";
    (void)strerror_r(errno, why, sizeof why);
    return STRAIT_FAIL(STRAIT_EIO, "%s: cannot be renamed to %s: %s", from, to, why);
}

/* Removes a checkpoint. It is renamed first, so that a kill in the middle leaves no partial
 * checkpoint under a valid name. Files that someone else put inside stay in the renamed folder. */
static strait_err retire(const char *run_folder, int64_t step) {
    char place[STRAIT_PATH_MAX];
    char gone[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_checkpoint_folder(run_folder, step, "", place));
    STRAIT_TRY(strait_checkpoint_folder(run_folder, step, ".gone.tmp", gone));
    (void)strait_file_remove_folder(gone);
    STRAIT_TRY(move(place, gone));
    STRAIT_TRY(strait_file_sync_parent(place)); // its files go only after its name is gone
    (void)strait_file_remove_folder(gone);
    return STRAIT_OK;
}

/* Moves the finished folder into place. A checkpoint of the same step is set aside first, and moved
 * back if that fails. */
static strait_err swap_in(const char *folder, const char *place, const char *old) {
    const int is_replaced = strait_file_exists(place);
    if (is_replaced) STRAIT_TRY(move(place, old));
    const strait_err err = move(folder, place);
    if (err != STRAIT_OK && is_replaced) (void)rename(old, place);
    return err;
}

static strait_err install(const char *run_folder, int64_t step, const char *folder) {
    char place[STRAIT_PATH_MAX];
    char old[STRAIT_PATH_MAX];
    char parent[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_checkpoint_folder(run_folder, step, "", place));
    STRAIT_TRY(strait_checkpoint_folder(run_folder, step, ".old.tmp", old));
    STRAIT_TRY(strait_file_path(parent, "%s/checkpoints", run_folder));
    STRAIT_TRY(swap_in(folder, place, old));
    STRAIT_TRY(strait_file_sync_folder(parent));
    (void)strait_file_remove_folder(
        old); // the new one is saved; failing to delete the old one is harmless
    return STRAIT_OK;
}

/* Removes checkpoints older than the newest plan->keep. Later steps, left by an earlier run that
 * was resumed from here, are kept: the user may still want them. With keeps_first the one of step 0
 * may be among the newest, and is then one of those that are kept. */
static strait_err prune(const char *run_folder, const strait_checkpoint_plan *plan) {
    int64_t *steps = NULL;
    int n = 0;
    STRAIT_TRY(strait_checkpoint_list(run_folder, &steps, &n));
    while (n > 0 && steps[n - 1] > plan->step)
        n--;
    strait_err err = STRAIT_OK;
    const int first = plan->keeps_first && n > 0 && steps[0] == 0;
    for (int i = first; i < n - plan->keep && err == STRAIT_OK; i++)
        err = retire(run_folder, steps[i]);
    strait_alloc_free(steps);
    return err;
}

strait_err strait_checkpoint_begin(const char *run_folder, int64_t step) {
    char folder[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_checkpoint_folder(run_folder, step, ".tmp", folder));
    STRAIT_TRY(strait_file_remove_folder(folder));
    return strait_file_make_folders(folder);
}

void strait_checkpoint_abandon(const char *run_folder, int64_t step) {
    char folder[STRAIT_PATH_MAX];
    char detail[512];
    strait_err_prefix("checkpoint of step %lld is not saved, earlier ones are kept",
                      (long long)step);
    (void)snprintf(detail, sizeof detail, "%s", strait_err_detail());
    if (strait_checkpoint_folder(run_folder, step, ".tmp", folder) == STRAIT_OK)
        (void)strait_file_remove_folder(folder); // a failure here must not hide the first error
    strait_err_note(__FILE__, __LINE__, "%s", detail);
}

static strait_err commit(const char *run_folder, const strait_checkpoint_plan *plan) {
    char folder[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_checkpoint_folder(run_folder, plan->step, ".tmp", folder));
    STRAIT_TRY(write_manifest(folder, plan));
    if (plan->lock != NULL) STRAIT_TRY(strait_folder_lock_check(plan->lock));
    return install(run_folder, plan->step, folder);
}

strait_err strait_checkpoint_commit(const char *run_folder, const strait_checkpoint_plan *plan) {
    assert(plan->keep >= 1 && plan->step >= 0);
    const strait_err err = commit(run_folder, plan);
    if (err == STRAIT_EDEPOSED) return err; // the files may be those of the new owner by now
    if (err != STRAIT_OK) {
        strait_checkpoint_abandon(run_folder, plan->step);
        return err;
    }
    return prune(run_folder, plan);
}

strait_err strait_checkpoint_save(const char *run_folder, const strait_checkpoint_plan *plan) {
    strait_err err = strait_checkpoint_begin(run_folder, plan->step);
    for (int i = 0; i < plan->n_files && err == STRAIT_OK; i++)
        err = strait_checkpoint_write(run_folder, plan->step, &plan->files[i]);
    if (err != STRAIT_OK) {
        strait_checkpoint_abandon(run_folder, plan->step);
        return err;
    }
    return strait_checkpoint_commit(run_folder, plan);
}
