#include "convert/files.h"

#include "base/alloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    FILE_BYTES = 256 << 20 // the largest published tokenizer.json has some 30 MB
};

const char *const strait_convert_companions[] = {"tokenizer_config.json", "special_tokens_map.json",
                                                 "generation_config.json", "chat_template.jinja",
                                                 NULL};

void strait_convert_say(const strait_convert_notes *notes, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (notes->note != NULL) notes->note(notes->user, text);
}

strait_err strait_convert_advance(strait_convert_notes *notes, int64_t bytes) {
    if (notes->progress != NULL && notes->progress(notes->user, notes->done, notes->total) != 0)
        return STRAIT_FAIL(STRAIT_EINTERRUPTED, "interrupted: nothing was written");
    notes->done += bytes;
    return STRAIT_OK;
}

/* Completion in a shell ends the names of folders with a slash. */
strait_err strait_convert_target(const char *path, const char *kind, char out[STRAIT_PATH_MAX]) {
    size_t n = strlen(path);
    if (n > 1 && path[n - 1] == '/' && strcmp(kind, "file") == 0)
        return STRAIT_FAIL(STRAIT_ECONFIG, "%s names a folder: name a file to write", path);
    if (strait_file_exists(path))
        return STRAIT_FAIL(STRAIT_ECONFIG, "%s exists: name a %s that does not", path, kind);
    STRAIT_TRY(strait_file_path(out, "%s", path));
    while (n > 1 && out[n - 1] == '/')
        out[--n] = '\0';
    return STRAIT_OK;
}

/* Removes what a killed conversion left. */
static strait_err clear(const char *folder, const char *lock_path) {
    int lock = 0;
    if (!strait_file_exists(folder)) return STRAIT_OK;
    if (!strait_file_exists(lock_path))
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "%s is in the way, and not what a conversion left: move it away",
                           folder);
    STRAIT_TRY(strait_file_lock(lock_path, &lock));
    strait_convert_discard(folder);
    strait_file_unlock(&lock);
    return STRAIT_OK;
}

static strait_err begin(const char *target, char folder[STRAIT_PATH_MAX], int *lock) {
    char lock_path[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_file_path(folder, "%s.tmp", target));
    STRAIT_TRY(strait_file_path(lock_path, "%s/.lock", folder));
    STRAIT_TRY(clear(folder, lock_path));
    STRAIT_TRY(strait_file_make_folders(folder));
    const strait_err err = strait_file_lock(lock_path, lock);
    if (err != STRAIT_OK) (void)rmdir(folder); // fails if another process writes there
    return err;
}

strait_err strait_convert_begin(const char *target, char folder[STRAIT_PATH_MAX], int *lock) {
    strait_file_unlock(lock); // of an attempt before
    const strait_err err = begin(target, folder, lock);
    if (err != STRAIT_OK) folder[0] = '\0';
    return err;
}

strait_err strait_convert_finish(const char *folder, const char *target, int *lock) {
    char lock_path[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_file_path(lock_path, "%s/.lock", folder));
    strait_file_remove_lock(lock_path, lock);
    return strait_file_move(folder, target);
}

strait_err strait_convert_copy(const char *from, const char *to, const char *name) {
    char path[STRAIT_PATH_MAX];
    char *text = NULL;
    size_t bytes = 0;
    STRAIT_TRY(strait_file_path(path, "%s/%s", from, name));
    if (!strait_file_exists(path)) return STRAIT_OK;
    STRAIT_TRY(strait_file_read(path, FILE_BYTES, &text, &bytes));
    strait_err err = strait_file_path(path, "%s/%s", to, name);
    if (err == STRAIT_OK) err = strait_file_write(path, text, bytes);
    strait_alloc_free(text);
    return err;
}

/* Cut from the path, so that messages name the run as the user did. */
strait_err strait_convert_run_of(const struct strait_checkpoint *checkpoint,
                                 char out[STRAIT_PATH_MAX]) {
    const char *path = strait_checkpoint_path(checkpoint);
    STRAIT_TRY(strait_file_path(out, "%s", path));
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(out, '/');
        if (slash == NULL || slash == out) return strait_file_path(out, "%s/../..", path);
        *slash = '\0';
    }
    return STRAIT_OK;
}

void strait_convert_discard_step(const char *run) {
    char detail[512], path[STRAIT_PATH_MAX];
    (void)snprintf(detail, sizeof detail, "%s", strait_err_detail());
    if (strait_file_path(path, "%s/checkpoints/00000000.tmp", run) == STRAIT_OK)
        (void)strait_file_remove_folder(path);
    strait_err_note(__FILE__, __LINE__, "%s", detail);
}

/* An import writes one checkpoint, of step 0; all else is one level deep. */
void strait_convert_discard(const char *folder) {
    char detail[512], path[STRAIT_PATH_MAX];
    strait_convert_discard_step(folder);
    (void)snprintf(detail, sizeof detail, "%s", strait_err_detail());
    if (strait_file_path(path, "%s/checkpoints/00000000", folder) == STRAIT_OK)
        (void)strait_file_remove_folder(path);
    if (strait_file_path(path, "%s/checkpoints", folder) == STRAIT_OK) (void)rmdir(path);
    if (strait_file_exists(folder)) (void)strait_file_remove_folder(folder);
    strait_err_note(__FILE__, __LINE__, "%s", detail);
}
