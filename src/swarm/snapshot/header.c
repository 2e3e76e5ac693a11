/* header.c - see header.h. Every size is checked before anything is allocated or
 * read for it, because the header may come from a hostile worker. */
#include "swarm/snapshot/header.h"

#include "store/safetensors.h"

#include <stdio.h>
#include <string.h>

enum {
    TENSORS_MAX = 1 << 16, // bounds the memory of the lists that write_part allocates
    SHAPE_TEXT = 64        // of describe()
};

/* On the wire since the first version, when a snapshot was called an image. */
const char strait_snapshot_magic[4] = {'S', 'I', 'm', 'g'};

strait_err strait_snapshot_header_fail(void) {
    return STRAIT_FAIL(STRAIT_EPROTO, "a worker sent an invalid header of a snapshot");
}

/* Names go into JSON and log lines: only printable ASCII without quotes and backslashes. */
static int is_printable(const char *name) {
    for (; *name != '\0'; name++)
        if (*name < ' ' || *name > '~' || *name == '"' || *name == '\\') return 0;
    return 1;
}

strait_err strait_snapshot_header_read_tensor(strait_reader *r, strait_snapshot_tensor *out) {
    size_t n = (size_t)strait_reader_uint(r, 1);
    if (n == 0 || n >= sizeof out->name) return strait_snapshot_header_fail();
    memset(out->name, 0, sizeof out->name);
    strait_reader_copy(r, out->name, n);
    const uint64_t dtype = strait_reader_uint(r, 1);
    out->is_state = strait_reader_uint(r, 1) != 0;
    const uint64_t rows = strait_reader_uint(r, 8);
    const uint64_t cols = strait_reader_uint(r, 8);
    /* With at most 2^30 rows and columns the number of bytes cannot overflow. */
    if (r->is_short || dtype > STRAIT_I32 || rows == 0 || cols == 0 || rows > 1u << 30 ||
        cols > 1u << 30 || !is_printable(out->name))
        return strait_snapshot_header_fail();
    out->dtype = (strait_dtype)dtype;
    out->rows = (int64_t)rows;
    out->cols = (int64_t)cols;
    out->bytes = (size_t)(rows * cols) * strait_dtype_bytes(out->dtype);
    return STRAIT_OK;
}

strait_err strait_snapshot_header_read_count(strait_reader *r, int *n) {
    char found[sizeof strait_snapshot_magic];
    strait_reader_copy(r, found, sizeof found);
    const uint64_t count = strait_reader_uint(r, 4);
    if (r->is_short || memcmp(found, strait_snapshot_magic, sizeof found) != 0 ||
        count > TENSORS_MAX)
        return strait_snapshot_header_fail();
    *n = (int)count;
    return STRAIT_OK;
}

strait_err strait_snapshot_header_measure(const unsigned char *data, size_t bytes, size_t limit,
                                          strait_snapshot_sizes *out) {
    strait_reader r = {data, bytes, 0};
    strait_snapshot_sizes sizes = {0};
    STRAIT_TRY(strait_snapshot_header_read_count(&r, &sizes.n));
    for (int i = 0; i < sizes.n; i++) {
        strait_snapshot_tensor tensor;
        STRAIT_TRY(strait_snapshot_header_read_tensor(&r, &tensor));
        /* Subtractions, since a sum of sizes that a worker claims could overflow. */
        if (tensor.bytes > limit || sizes.value_bytes > limit - tensor.bytes)
            return strait_snapshot_header_fail();
        sizes.value_bytes += tensor.bytes;
    }
    sizes.list_bytes = bytes - r.left;
    if (sizes.list_bytes > limit - sizes.value_bytes) return strait_snapshot_header_fail();
    *out = sizes;
    return STRAIT_OK;
}

/* ---- comparing two headers ---- */

/* Returns whether a header that was parsed before has a tensor of this name. */
static int has_name(const unsigned char *data, size_t bytes, const char *name) {
    strait_reader r = {data, bytes, 0};
    int n = 0;
    if (strait_snapshot_header_read_count(&r, &n) != STRAIT_OK) return 0;
    for (int i = 0; i < n; i++) {
        strait_snapshot_tensor tensor;
        if (strait_snapshot_header_read_tensor(&r, &tensor) != STRAIT_OK) return 0;
        if (strcmp(tensor.name, name) == 0) return 1;
    }
    return 0;
}

static int is_same(const strait_snapshot_tensor *a, const strait_snapshot_tensor *b) {
    return strcmp(a->name, b->name) == 0 && a->dtype == b->dtype && a->is_state == b->is_state &&
           a->rows == b->rows && a->cols == b->cols;
}

/* Formats type, shape and kind: "F32 24 x 40, a weight". */
static const char *describe(const strait_snapshot_tensor *tensor, char text[SHAPE_TEXT]) {
    (void)snprintf(text, SHAPE_TEXT, "%s %lld x %lld, %s", strait_safetensors_dtype(tensor->dtype),
                   (long long)tensor->rows, (long long)tensor->cols,
                   tensor->is_state ? "state" : "a weight");
    return text;
}

/* Reports two different tensors at the same position. */
static strait_err fail_different(const strait_snapshot_tensor *found,
                                 const strait_snapshot_tensor *wanted) {
    char found_text[SHAPE_TEXT];
    char wanted_text[SHAPE_TEXT];
    if (strcmp(found->name, wanted->name) != 0)
        return STRAIT_FAIL(STRAIT_EDATA, "tensor \"%s\" found where \"%s\" is expected",
                           found->name, wanted->name);
    return STRAIT_FAIL(STRAIT_EDATA, "tensor \"%s\" is %s, expected %s", found->name,
                       describe(found, found_text), describe(wanted, wanted_text));
}

static strait_err fail_missing(const strait_snapshot_tensor *tensor) {
    char text[SHAPE_TEXT];
    return STRAIT_FAIL(STRAIT_EDATA, "tensor \"%s\" (%s) is missing", tensor->name,
                       describe(tensor, text));
}

static strait_err fail_unexpected(const strait_snapshot_tensor *tensor) {
    return STRAIT_FAIL(STRAIT_EDATA, "tensor \"%s\" does not belong to this stage", tensor->name);
}

strait_err strait_snapshot_header_match(const unsigned char *data, size_t bytes,
                                        const unsigned char *wanted, size_t wanted_bytes) {
    strait_snapshot_sizes sizes = {0};
    strait_reader a = {data, bytes, 0};
    strait_reader b = {wanted, wanted_bytes, 0};
    int n_found = 0;
    int n_wanted = 0;
    STRAIT_TRY(strait_snapshot_header_measure(data, bytes, SIZE_MAX, &sizes));
    STRAIT_TRY(strait_snapshot_header_read_count(&a, &n_found));
    STRAIT_TRY(strait_snapshot_header_read_count(&b, &n_wanted));
    for (int i = 0; i < n_found || i < n_wanted; i++) {
        strait_snapshot_tensor ours = {0};
        strait_snapshot_tensor theirs = {0};
        if (i < n_found) STRAIT_TRY(strait_snapshot_header_read_tensor(&a, &theirs));
        if (i < n_wanted) STRAIT_TRY(strait_snapshot_header_read_tensor(&b, &ours));
        if (is_same(&theirs, &ours)) continue;
        /* Names are looked up so that one missing tensor is not reported as all others moved. */
        if (i < n_wanted && !has_name(data, bytes, ours.name)) return fail_missing(&ours);
        if (i >= n_wanted || !has_name(wanted, wanted_bytes, theirs.name))
            return fail_unexpected(&theirs);
        return fail_different(&theirs, &ours);
    }
    return STRAIT_OK;
}
