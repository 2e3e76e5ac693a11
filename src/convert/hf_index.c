/* hf_index.c - model.safetensors.index.json: which file of a folder has which tensor. */
#include "base/alloc.h"
#include "base/json.h"
#include "convert/hf_folder.h"

#include <string.h>

enum {
    FILES_MAX = 4096 // of the largest published models a few hundred
};

struct strait_hf_index {
    json_t *document; // owns the names
    const json_t *map;
    const char **files; // distinct
    int n_files;
};

static int find_file(const struct strait_hf_index *index, const char *name) {
    for (int i = 0; i < index->n_files; i++)
        if (strcmp(index->files[i], name) == 0) return i;
    return -1;
}

/* A name with a slash would lead out of the folder, and one with control characters would break
 * the lines of messages. */
static int is_file_name(const char *name) {
    const size_t n = strlen(name), end = strlen(".safetensors");
    for (const char *c = name; *c != '\0'; c++)
        if (*c == '/' || *c == '\\' || (unsigned char)*c < 32 || *c == 127) return 0;
    return n > end && n < 256 && name[0] != '.' && strcmp(name + n - end, ".safetensors") == 0;
}

static strait_err list_files(struct strait_hf_index *index) {
    const char *tensor;
    json_t *value;
    json_object_foreach((json_t *)index->map, tensor, value) {
        const char *name = json_string_value(value);
        if (name == NULL || !is_file_name(name))
            return STRAIT_FAIL(STRAIT_EDATA,
                               "tensor \"%.80s\" is not in a .safetensors file of this folder",
                               tensor);
        if (find_file(index, name) >= 0) continue;
        if (index->n_files == FILES_MAX)
            return STRAIT_FAIL(STRAIT_EDATA, "it names more than %d files", FILES_MAX);
        index->files[index->n_files++] = name;
    }
    if (index->n_files == 0) return STRAIT_FAIL(STRAIT_EDATA, "it lists no tensors");
    return STRAIT_OK;
}

strait_err strait_hf_index_parse(const char *text, size_t bytes, struct strait_hf_index **out) {
    struct strait_hf_index *index = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *index, "index of tensors", (void **)&index));
    strait_err err = strait_alloc(FILES_MAX, sizeof *index->files, "index of tensors",
                                  (void **)&index->files);
    if (err == STRAIT_OK) err = strait_json_parse(text, bytes, &index->document);
    if (err == STRAIT_OK && !json_is_object(index->document))
        err = STRAIT_FAIL(STRAIT_EDATA, "it is not a JSON object");
    if (err == STRAIT_OK) err = strait_json_object(index->document, "weight_map", &index->map);
    if (err == STRAIT_OK) err = list_files(index);
    if (err != STRAIT_OK) {
        strait_hf_index_close(&index);
        return err;
    }
    *out = index;
    return STRAIT_OK;
}

void strait_hf_index_close(struct strait_hf_index **index) {
    if (*index == NULL) return;
    json_decref((*index)->document);
    strait_alloc_free(((void *)(*index)->files));
    strait_alloc_free(*index);
    *index = NULL;
}

int strait_hf_index_files(const struct strait_hf_index *index) {
    return index->n_files;
}

const char *strait_hf_index_file(const struct strait_hf_index *index, int i) {
    return index->files[i];
}

int strait_hf_index_find(const struct strait_hf_index *index, const char *tensor) {
    const char *name = json_string_value(json_object_get(index->map, tensor));
    return name != NULL ? find_file(index, name) : -1;
}
