#include "store/safetensors.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    HEADER_MAX = 100000000 // the limit of the safetensors package
};

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {{"F64", 8}, {"F32", 4}, {"F16", 2},  {"BF16", 2},    {"I64", 8},
              {"I32", 4}, {"I16", 2}, {"I8", 1},   {"U64", 8},     {"U32", 4},
              {"U16", 2}, {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};

struct strait_safetensors {
    char *name;
    strait_file_map map; // of the file; empty when the caller owns the memory
    json_t *header;      // owns the names and metadata that tensors point to
    strait_safetensor *tensors;
    int n;
};

/* Notes an error about `file` and yields STRAIT_EDATA. */
#define BAD(file, ...)                                                                        \
    (strait_err_note(__FILE__, __LINE__, __VA_ARGS__), strait_err_prefix("%s", (file)->name), \
     STRAIT_EDATA)

/* All types of the format are known, so that files of other programs can be listed, although only
 * some can be read into tensors. */
static size_t dtype_bytes(const char *name) {
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtypes[i].name, name) == 0) return dtypes[i].bytes;
    return 0;
}

/* Whether a name has no control characters: names appear in one-line messages. */
static int is_plain(const char *name) {
    for (; *name != '\0'; name++)
        if (iscntrl((unsigned char)*name)) return 0;
    return 1;
}

/* Reads the shape and computes its size in bytes, guarding against overflow. */
static strait_err read_shape(const json_t *entry, strait_safetensor *t) {
    const json_t *shape = NULL;
    STRAIT_TRY(strait_json_array(entry, "shape", &shape));
    if (json_array_size(shape) > STRAIT_SAFETENSORS_DIMS)
        return STRAIT_FAIL(STRAIT_EDATA, "%zu dimensions, more than the %d supported",
                           json_array_size(shape), STRAIT_SAFETENSORS_DIMS);
    t->n_dims = (int)json_array_size(shape);
    t->bytes = dtype_bytes(t->dtype);
    if (t->bytes == 0)
        return STRAIT_FAIL(STRAIT_EDATA, "dtype \"%.16s\" is not supported", t->dtype);
    for (int i = 0; i < t->n_dims; i++) {
        const json_t *dim = json_array_get(shape, (size_t)i);
        t->dims[i] = json_integer_value(dim);
        if (!json_is_integer(dim) || t->dims[i] < 0)
            return STRAIT_FAIL(STRAIT_EDATA, "a dimension is not a non-negative integer");
        if (t->dims[i] > 0 && t->bytes > (size_t)INT64_MAX / (size_t)t->dims[i])
            return STRAIT_FAIL(STRAIT_EDATA, "the shape is too large");
        t->bytes *= (size_t)t->dims[i];
    }
    return STRAIT_OK;
}

/* Reads where the data lies and checks it against the file and the shape. */
static strait_err read_place(const json_t *entry, const unsigned char *data, size_t capacity,
                             strait_safetensor *t) {
    const json_t *offsets = NULL;
    STRAIT_TRY(strait_json_array(entry, "data_offsets", &offsets));
    const json_t *first = json_array_get(offsets, 0);
    const json_t *second = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(second))
        return STRAIT_FAIL(STRAIT_EDATA, "\"data_offsets\" is not a pair of integers");
    const int64_t start = json_integer_value(first);
    const int64_t end = json_integer_value(second);
    if (start < 0 || end < start || (uint64_t)end > capacity)
        return STRAIT_FAIL(STRAIT_EDATA,
                           "bytes %lld to %lld are outside the %zu bytes of data; the file may be "
                           "truncated",
                           (long long)start, (long long)end, capacity);
    if ((size_t)(end - start) != t->bytes)
        return STRAIT_FAIL(STRAIT_EDATA, "%lld bytes of data, but its shape and type need %zu",
                           (long long)(end - start), t->bytes);
    t->data = data + start;
    return STRAIT_OK;
}

/* The caller adds the file and the tensor's name to errors from here. */
static strait_err read_tensor(const char *name, const json_t *entry, const unsigned char *data,
                              size_t capacity, strait_safetensor *t) {
    if (!json_is_object(entry))
        return STRAIT_FAIL(STRAIT_EDATA, "its description is not a JSON object");
    t->name = name;
    STRAIT_TRY(strait_json_string(entry, "dtype", &t->dtype));
    STRAIT_TRY(read_shape(entry, t));
    return read_place(entry, data, capacity, t);
}

/* The format allows only strings there, and accessors rely on it. */
static strait_err check_metadata(const struct strait_safetensors *file, json_t *metadata) {
    if (!json_is_object(metadata)) return BAD(file, "__metadata__ is not an object");
    const char *key;
    json_t *value;
    json_object_foreach(metadata, key, value) {
        if (!json_is_string(value))
            return BAD(file, "__metadata__: \"%.80s\" is not a string", key);
    }
    return STRAIT_OK;
}

/* Every size is checked before a pointer is formed, because checkpoints come from other machines.
 */
static strait_err read_tensors(struct strait_safetensors *file, const unsigned char *data,
                               size_t capacity) {
    void *memory = NULL;
    STRAIT_TRY(
        strait_alloc(json_object_size(file->header), sizeof *file->tensors, file->name, &memory));
    file->tensors = memory;
    const char *name;
    json_t *entry;
    json_object_foreach(file->header, name, entry) {
        if (strcmp(name, "__metadata__") == 0) {
            STRAIT_TRY(check_metadata(file, entry));
            continue;
        }
        if (!is_plain(name)) return BAD(file, "a tensor name contains control characters");
        const strait_err err = read_tensor(name, entry, data, capacity, &file->tensors[file->n]);
        if (err != STRAIT_OK) {
            strait_err_prefix("%s: tensor \"%.80s\"", file->name, name);
            return err;
        }
        file->n++;
    }
    return STRAIT_OK;
}

/* Orders by offset; an empty tensor comes before the tensor that starts at the same offset. */
static int by_place(const void *a, const void *b) {
    const strait_safetensor *x = a;
    const strait_safetensor *y = b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Tensors are sorted by name once, so that each look-up is a binary search. */
static int by_name(const void *a, const void *b) {
    return strcmp(((const strait_safetensor *)a)->name, ((const strait_safetensor *)b)->name);
}

/* Checks that the tensors cover the data section exactly, so that none overlap and no bytes are
 * hidden between them. Leaves the tensors sorted by name, for bsearch. */
static strait_err check_places(struct strait_safetensors *file, const unsigned char *data,
                               size_t capacity) {
    const size_t n = (size_t)file->n;
    if (n > 0) qsort(file->tensors, n, sizeof *file->tensors, by_place);
    size_t end = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t start = (size_t)(file->tensors[i].data - data);
        if (start != end)
            return BAD(file, "tensor \"%.80s\": %s", file->tensors[i].name,
                       start < end ? "overlaps the previous tensor"
                                   : "the bytes before it belong to no tensor");
        end += file->tensors[i].bytes;
    }
    if (end != capacity) return BAD(file, "%zu bytes after the last tensor", capacity - end);
    if (n > 0) qsort(file->tensors, n, sizeof *file->tensors, by_name);
    return STRAIT_OK;
}

/* The first eight bytes are the length of the JSON header, little-endian. */
static strait_err read_header(struct strait_safetensors *file, const unsigned char *data,
                              size_t bytes) {
    if (bytes < 8) return BAD(file, "%zu bytes are too few for a safetensors file", bytes);
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--)
        length = length << 8 | data[i];
    if (length > HEADER_MAX || length > bytes - 8)
        return BAD(file,
                   "a header of %llu bytes does not fit: not a safetensors file, or truncated",
                   (unsigned long long)length);
    if (length == 0 || data[8] != '{') return BAD(file, "not a safetensors file");
    const strait_err err = strait_json_parse((const char *)data + 8, (size_t)length, &file->header);
    if (err != STRAIT_OK) {
        strait_err_prefix("%s: header", file->name);
        return err;
    }
    data += 8 + length;
    bytes -= 8 + (size_t)length;
    STRAIT_TRY(read_tensors(file, data, bytes));
    return check_places(file, data, bytes);
}

/* Allocates a file without contents. */
static strait_err make(const char *name, struct strait_safetensors **out) {
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof **out, name, &memory));
    struct strait_safetensors *file = memory;
    const strait_err err = strait_alloc_string(name, &file->name);
    if (err != STRAIT_OK) strait_alloc_free(file);
    if (err == STRAIT_OK) *out = file;
    return err;
}

strait_err strait_safetensors_parse(const char *name, const void *data, size_t bytes,
                                    struct strait_safetensors **out) {
    struct strait_safetensors *file = NULL;
    STRAIT_TRY(make(name, &file));
    const strait_err err = read_header(file, data, bytes);
    if (err != STRAIT_OK)
        strait_safetensors_close(&file);
    else
        *out = file;
    return err;
}

/* Mapped rather than read: listing a file then touches its header only. */
strait_err strait_safetensors_open(const char *path, struct strait_safetensors **out) {
    strait_file_map map = {NULL, 0};
    STRAIT_TRY(strait_file_map_open(path, &map));
    const strait_err err = strait_safetensors_parse(path, map.data, map.bytes, out);
    if (err != STRAIT_OK)
        strait_file_map_close(&map);
    else
        (*out)->map = map;
    return err;
}

void strait_safetensors_close(struct strait_safetensors **file) {
    if (*file == NULL) return;
    json_decref((*file)->header);
    strait_alloc_free((*file)->tensors);
    strait_alloc_free((*file)->name);
    strait_file_map_close(&(*file)->map);
    strait_alloc_free(*file);
    *file = NULL;
}

/* Metadata is not a tensor and is not counted. */
int strait_safetensors_count(const struct strait_safetensors *file) {
    return file->n;
}

const strait_safetensor *strait_safetensors_at(const struct strait_safetensors *file, int i) {
    return &file->tensors[i];
}

const strait_safetensor *strait_safetensors_find(const struct strait_safetensors *file,
                                                 const char *name) {
    const strait_safetensor key = {.name = name};
    if (file->n == 0) return NULL;
    return bsearch(&key, file->tensors, (size_t)file->n, sizeof key, by_name);
}

/* Missing metadata and a missing key both read as NULL. */
const char *strait_safetensors_metadata(const struct strait_safetensors *file, const char *key) {
    return json_string_value(json_object_get(json_object_get(file->header, "__metadata__"), key));
}

const char *strait_safetensors_dtype(strait_dtype dtype) {
    switch (dtype) {
    case STRAIT_F32: return "F32";
    case STRAIT_BF16: return "BF16";
    case STRAIT_I8: return "I8";
    case STRAIT_I32: return "I32";
    case STRAIT_F16: return "F16";
    }
    return "?";
}

/* Vectors may be stored with one dimension, as PyTorch does. */
static int is_same_shape(const strait_safetensor *t, strait_tensor into) {
    if (t->n_dims == 2) return t->dims[0] == into.rows && t->dims[1] == into.cols;
    return t->n_dims == 1 && (into.rows == 1 || into.cols == 1) &&
           t->dims[0] == into.rows * into.cols;
}

/* Both shapes are shown, because the difference usually tells which option changed. */
static void show_shape(const strait_safetensor *t, char *out, size_t capacity) {
    size_t used = (size_t)snprintf(out, capacity, "%s [", t->dtype);
    for (int i = 0; i < t->n_dims && used < capacity; i++)
        used += (size_t)snprintf(out + used, capacity - used, "%s%lld", i > 0 ? " x " : "",
                                 (long long)t->dims[i]);
    if (used < capacity) (void)snprintf(out + used, capacity - used, "]");
}

strait_err strait_safetensors_view(const struct strait_safetensors *file, const char *name,
                                   strait_tensor shape, const unsigned char **out) {
    const strait_safetensor *t = strait_safetensors_find(file, name);
    if (t == NULL) return BAD(file, "tensor \"%.80s\" is missing", name);
    if (strcmp(t->dtype, strait_safetensors_dtype(shape.dtype)) != 0 || !is_same_shape(t, shape)) {
        char found[200];
        show_shape(t, found, sizeof found);
        return BAD(file, "tensor \"%.80s\": expected %s [%lld x %lld], found %s", name,
                   strait_safetensors_dtype(shape.dtype), (long long)shape.rows,
                   (long long)shape.cols, found);
    }
    *out = t->data;
    return STRAIT_OK;
}

/* Memory given by the caller is not a mapping, and dropping its pages would lose data. */
void strait_safetensors_drop_pages(const struct strait_safetensors *file, const char *name) {
    const strait_safetensor *t = strait_safetensors_find(file, name);
    if (t != NULL && file->map.data != NULL)
        strait_file_map_drop_pages(&file->map, t->data, t->bytes);
}

void strait_safetensors_prefetch(const struct strait_safetensors *file, const char *name) {
    const strait_safetensor *t = strait_safetensors_find(file, name);
    if (t != NULL && file->map.data != NULL)
        strait_file_map_prefetch(&file->map, t->data, t->bytes);
}

/* The pages are dropped after the copy; otherwise a restore would hold the model twice. */
strait_err strait_safetensors_read(const struct strait_safetensors *file, const char *name,
                                   strait_tensor into) {
    const unsigned char *values = NULL;
    const size_t bytes = strait_tensor_bytes(into);
    STRAIT_TRY(strait_safetensors_view(file, name, into, &values));
    if (bytes > 0) memcpy(into.data, values, bytes);
    strait_safetensors_drop_pages(file, name);
    return STRAIT_OK;
}
