#include "convert/hf_folder.h"

#include "base/alloc.h"
#include "base/file.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

enum {
    INDEX_BYTES = 256 << 20 // a hundred bytes per tensor
};

static const char single_name[] = "model.safetensors";
static const char index_name[] = "model.safetensors.index.json";

struct strait_hf_folder {
    char *path;
    struct strait_hf_index *index; // NULL: one file
    struct strait_safetensors **files;
    int n_files;
};

/* Whether a file is one of PyTorch's pickle files, by its name. */
static int is_pickle(const char *name) {
    static const char *const endings[] = {".bin", ".pt", ".pth", ".pkl", ".ckpt"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot != NULL && i < sizeof endings / sizeof *endings; i++)
        if (strcmp(dot, endings[i]) == 0) return 1;
    return 0;
}

/* Finds the first pickle file of a folder, in the order of names. Returns whether there is one. */
static int find_pickle(const char *folder, char found[256]) {
    DIR *entries = opendir(folder);
    const struct dirent *entry;
    found[0] = '\0';
    while (entries != NULL && (entry = readdir(entries)) != NULL) // NOLINT(concurrency-mt-unsafe)
        if (is_pickle(entry->d_name) && (found[0] == '\0' || strcmp(entry->d_name, found) < 0))
            (void)snprintf(found, 256, "%s", entry->d_name);
    if (entries != NULL) (void)closedir(entries);
    return found[0] != '\0';
}

static strait_err no_weights(const char *folder) {
    char pickle[256];
    if (find_pickle(folder, pickle))
        return STRAIT_FAIL(STRAIT_EDATA,
                           "%s/%s: pickle files are not read, because they can run code; convert "
                           "them with transformers: save_pretrained(DIR, safe_serialization=True)",
                           folder, pickle);
    return STRAIT_FAIL(STRAIT_EDATA, "%s: has neither %s nor %s", folder, single_name, index_name);
}

static strait_err load_index(const char *folder, struct strait_hf_index **out) {
    char path[STRAIT_PATH_MAX];
    char *text = NULL;
    size_t bytes = 0;
    STRAIT_TRY(strait_file_path(path, "%s/%s", folder, index_name));
    if (!strait_file_exists(path)) return no_weights(folder);
    STRAIT_TRY(strait_file_read(path, INDEX_BYTES, &text, &bytes));
    const strait_err err = strait_hf_index_parse(text, bytes, out);
    strait_alloc_free(text);
    if (err != STRAIT_OK) strait_err_prefix("%s", path);
    return err;
}

static strait_err open_file(struct strait_hf_folder *f, const char *name) {
    char path[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_file_path(path, "%s/%s", f->path, name));
    if (!strait_file_exists(path))
        return STRAIT_FAIL(STRAIT_EDATA, "%s: is missing, but %s lists it", path, index_name);
    STRAIT_TRY(strait_safetensors_open(path, &f->files[f->n_files]));
    f->n_files++;
    return STRAIT_OK;
}

/* Every tensor must be where the index says; what the index does not list is not read. */
static strait_err check_index(const struct strait_hf_folder *f) {
    for (int i = 0; i < f->n_files; i++)
        for (int t = 0; t < strait_safetensors_count(f->files[i]); t++) {
            const char *name = strait_safetensors_at(f->files[i], t)->name;
            if (strait_hf_index_find(f->index, name) != i)
                return STRAIT_FAIL(STRAIT_EDATA,
                                   "%s/%s: has the tensor \"%.80s\", which %s puts "
                                   "elsewhere",
                                   f->path, strait_hf_index_file(f->index, i), name, index_name);
        }
    return STRAIT_OK;
}

static strait_err open_files(struct strait_hf_folder *f) {
    char path[STRAIT_PATH_MAX];
    STRAIT_TRY(strait_file_path(path, "%s/%s", f->path, single_name));
    if (strait_file_exists(path)) {
        STRAIT_TRY(strait_alloc(1, sizeof(void *), "tensor files", (void **)&f->files));
        return open_file(f, single_name);
    }
    STRAIT_TRY(load_index(f->path, &f->index));
    const int n = strait_hf_index_files(f->index);
    STRAIT_TRY(strait_alloc((size_t)n, sizeof(void *), "tensor files", (void **)&f->files));
    for (int i = 0; i < n; i++)
        STRAIT_TRY(open_file(f, strait_hf_index_file(f->index, i)));
    return check_index(f);
}

strait_err strait_hf_folder_open(const char *path, struct strait_hf_folder **out) {
    struct strait_hf_folder *f = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *f, "model folder", (void **)&f));
    strait_err err = strait_alloc_string(path, &f->path);
    if (err == STRAIT_OK) err = open_files(f);
    if (err != STRAIT_OK) {
        strait_hf_folder_close(&f);
        return err;
    }
    *out = f;
    return STRAIT_OK;
}

void strait_hf_folder_close(struct strait_hf_folder **folder) {
    struct strait_hf_folder *f = *folder;
    if (f == NULL) return;
    for (int i = 0; i < f->n_files; i++)
        strait_safetensors_close(&f->files[i]);
    strait_hf_index_close(&f->index);
    strait_alloc_free((void *)f->files);
    strait_alloc_free(f->path);
    strait_alloc_free(f);
    *folder = NULL;
}

/* The file with a tensor; NULL if there is none. */
static const struct strait_safetensors *file_of(const struct strait_hf_folder *f,
                                                const char *name) {
    const int i = f->index != NULL ? strait_hf_index_find(f->index, name) : 0;
    return i >= 0 ? f->files[i] : NULL;
}

const strait_safetensor *strait_hf_folder_find(const struct strait_hf_folder *folder,
                                               const char *name) {
    const struct strait_safetensors *file = file_of(folder, name);
    return file != NULL ? strait_safetensors_find(file, name) : NULL;
}

void strait_hf_folder_prefetch(const struct strait_hf_folder *folder, const char *name) {
    const struct strait_safetensors *file = file_of(folder, name);
    if (file != NULL) strait_safetensors_prefetch(file, name);
}

void strait_hf_folder_drop_pages(const struct strait_hf_folder *folder, const char *name) {
    const struct strait_safetensors *file = file_of(folder, name);
    if (file != NULL) strait_safetensors_drop_pages(file, name);
}

const strait_safetensor *strait_hf_folder_at(const struct strait_hf_folder *folder, int i) {
    for (int file = 0; file < folder->n_files; file++) {
        const int n = strait_safetensors_count(folder->files[file]);
        if (i < n) return strait_safetensors_at(folder->files[file], i);
        i -= n;
    }
    return NULL;
}

const char *strait_hf_folder_path(const struct strait_hf_folder *folder) {
    return folder->path;
}
