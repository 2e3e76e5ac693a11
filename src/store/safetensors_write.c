#include "base/digest/hash.h"
#include "base/file.h"
#include "base/json.h"
#include "store/safetensors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    LARGE = 1 << 20 // bytes that are written at once; from there on the disk is told to begin
};

/* Tensors have two dimensions here; a vector is written with the one that other programs expect. */
static json_t *shape_of(const strait_safetensors_item *item) {
    const json_int_t rows = item->tensor.rows;
    const json_int_t cols = item->tensor.cols;
    if (item->is_vector) return json_pack("[I]", rows * cols);
    return json_pack("[I, I]", rows, cols);
}

/* The format requires that all values are strings. */
static json_t *metadata_of(const strait_safetensors_content *content) {
    json_t *metadata = json_object();
    for (int i = 0; i < content->n_metadata; i++)
        if (json_object_set_new(metadata, content->metadata[i].key,
                                json_string(content->metadata[i].value)) != 0) {
            json_decref(metadata);
            return NULL;
        }
    return metadata;
}

/* Adds one member to the header, taking over `value`. jansson rejects names that are not UTF-8. */
static strait_err add(json_t *header, const char *name, json_t *value) {
    if (value != NULL && json_object_get(header, name) != NULL) {
        json_decref(value);
        return STRAIT_FAIL(STRAIT_EINVAL, "two tensors are named \"%.80s\"", name);
    }
    if (json_object_set_new(header, name, value) != 0)
        return STRAIT_FAIL(STRAIT_EINVAL, "\"%.80s\" cannot be written as JSON", name);
    return STRAIT_OK;
}

/* Fills the header: dtype, shape and offsets of every tensor, in the order of the data. */
static strait_err describe(const strait_safetensors_content *content, json_t *header) {
    if (content->n_metadata > 0) STRAIT_TRY(add(header, "__metadata__", metadata_of(content)));
    size_t end = 0;
    for (int i = 0; i < content->n_items; i++) {
        const strait_safetensors_item *item = &content->items[i];
        const size_t start = end;
        end += strait_tensor_bytes(item->tensor);
        json_t *entry = json_pack(
            "{s:s, s:o, s:[I, I]}", "dtype", strait_safetensors_dtype(item->tensor.dtype), "shape",
            shape_of(item), "data_offsets", (json_int_t)start, (json_int_t)end);
        STRAIT_TRY(add(header, item->name, entry));
    }
    return STRAIT_OK;
}

struct output {
    FILE *file;
    struct strait_hash *hash; // NULL: not wanted
};

/* In pieces that are still in the cache when they are written. */
static void put(struct output *out, const void *data, size_t bytes) {
    const unsigned char *at = data;
    for (size_t done = 0, n = 0; done < bytes && !ferror(out->file); done += n) {
        n = bytes - done < LARGE ? bytes - done : LARGE;
        if (out->hash != NULL) strait_hash_add(out->hash, at + done, n);
        (void)fwrite(at + done, 1, n, out->file);
    }
}

/* Writes the length and the header, padded with spaces so that the data starts at a multiple of 8.
 */
static void write_header(struct output *out, const char *text) {
    const size_t bytes = strlen(text);
    const size_t padded = (bytes + 7) / 8 * 8;
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)(padded >> (8 * i));
    put(out, length, sizeof length);
    put(out, text, bytes);
    put(out, "       ", padded - bytes);
}

static strait_err write_tensors(struct output *out, const strait_safetensors_content *content) {
    for (int i = 0; i < content->n_items && !ferror(out->file); i++) {
        const size_t bytes = strait_tensor_bytes(content->items[i].tensor);
        const void *values = content->items[i].tensor.data;
        if (content->load != NULL) STRAIT_TRY(content->load(content->user, i, &values));
        put(out, values, bytes);
        if (bytes >= LARGE) strait_file_begin_write(out->file);
    }
    return STRAIT_OK;
}

/* Stops at the first failed write; strait_file_finish then reports it. */
static strait_err write_file(const char *path, const char *header,
                             const strait_safetensors_content *content) {
    struct output out = {fopen(path, "wbe"), NULL};
    if (out.file == NULL) {
        char why[128] = "";
        (void)strerror_r(errno, why, sizeof why);
        return STRAIT_FAIL(STRAIT_EIO, "%s: cannot create: %s", path, why);
    }
    strait_err err = content->hash != NULL ? strait_hash_open(&out.hash) : STRAIT_OK;
    if (err == STRAIT_OK) {
        write_header(&out, header);
        err = write_tensors(&out, content);
    }
    if (err == STRAIT_OK && out.hash != NULL) strait_hash_finish(&out.hash, content->hash);
    strait_hash_close(&out.hash);
    if (err != STRAIT_OK) {
        (void)fclose(out.file); // the caller removes it
        return err;
    }
    return strait_file_finish(&out.file, path);
}

/* The order of the header is that of the data, so that equal models give equal bytes. */
strait_err strait_safetensors_write(const char *path, const strait_safetensors_content *content) {
    json_t *header = json_object();
    if (header == NULL) return STRAIT_FAIL(STRAIT_ENOMEM, "%s: header", path);
    strait_err err = describe(content, header);
    if (err != STRAIT_OK) strait_err_prefix("%s", path);
    char *text = err == STRAIT_OK ? json_dumps(header, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
    json_decref(header);
    if (err != STRAIT_OK) return err;
    if (text == NULL) return STRAIT_FAIL(STRAIT_ENOMEM, "%s: header", path);
    err = write_file(path, text, content);
    free(text);
    return err;
}
