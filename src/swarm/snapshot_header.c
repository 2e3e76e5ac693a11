#include "swarm/snapshot_header.h"

#include "store/safetensors.h"

#include <stdio.h>
#include <string.h>

enum {
    TENSORS_MAX = 1 << 16,
    SHAPE_TEXT = 64
};

const char strait_snapshot_magic[4] = {'S', 'I', 'm', 'g'};

strait_err strait_snapshot_header_wrong(void) {
    return STRAIT_FAIL(STRAIT_EPROTO, "a worker sent an invalid header of a snapshot");
}

/* Names go into JSON and log lines: only printable ASCII without quotes and backslashes. */
static int is_name(const char *name) {
    for (; *name != '\0'; name++)
        if (*name < ' ' || *name > '~' || *name == '"' || *name == '\\') return 0;
    return 1;
}

strait_err strait_snapshot_header_row(strait_reader *r, strait_snapshot_row *out) {
    size_t n = (size_t)strait_reader_uint(r, 1);
    if (n == 0 || n >= sizeof out->name) return strait_snapshot_header_wrong();
    memset(out->name, 0, sizeof out->name);
    strait_reader_copy(r, out->name, n);
    const uint64_t dtype = strait_reader_uint(r, 1);
    out->is_state = strait_reader_uint(r, 1) != 0;
    const uint64_t rows = strait_reader_uint(r, 8);
    const uint64_t cols = strait_reader_uint(r, 8);
    if (r->is_short || dtype > STRAIT_I32 || rows == 0 || cols == 0 || rows > 1u << 30 ||
        cols > 1u << 30 || !is_name(out->name))
        return strait_snapshot_header_wrong();
    out->dtype = (strait_dtype)dtype;
    out->rows = (int64_t)rows;
    out->cols = (int64_t)cols;
    out->bytes = (size_t)(rows * cols) * strait_dtype_bytes(out->dtype);
    return STRAIT_OK;
}

strait_err strait_snapshot_header_head(strait_reader *r, int *n) {
    char found[sizeof strait_snapshot_magic];
    strait_reader_copy(r, found, sizeof found);
    const uint64_t count = strait_reader_uint(r, 4);
    if (r->is_short || memcmp(found, strait_snapshot_magic, sizeof found) != 0 ||
        count > TENSORS_MAX)
        return strait_snapshot_header_wrong();
    *n = (int)count;
    return STRAIT_OK;
}

strait_err strait_snapshot_header_sum(const unsigned char *data, size_t bytes, size_t limit,
                                      strait_snapshot_sum *out) {
    strait_reader r = {data, bytes, 0};
    strait_snapshot_sum sum = {0};
    STRAIT_TRY(strait_snapshot_header_head(&r, &sum.n));
    for (int i = 0; i < sum.n; i++) {
        strait_snapshot_row row;
        STRAIT_TRY(strait_snapshot_header_row(&r, &row));
        if (row.bytes > limit || sum.value_bytes > limit - row.bytes)
            return strait_snapshot_header_wrong();
        sum.value_bytes += row.bytes;
    }
    sum.list_bytes = bytes - r.left;
    if (sum.list_bytes > limit - sum.value_bytes) return strait_snapshot_header_wrong();
    *out = sum;
    return STRAIT_OK;
}

/* ---- comparing two headers ---- */

/* Returns whether a header that was parsed before has a tensor of this name. */
static int has_name(const unsigned char *data, size_t bytes, const char *name) {
    strait_reader r = {data, bytes, 0};
    int n = 0;
    if (strait_snapshot_header_head(&r, &n) != STRAIT_OK) return 0;
    for (int i = 0; i < n; i++) {
        strait_snapshot_row row;
        if (strait_snapshot_header_row(&r, &row) != STRAIT_OK) return 0;
        if (strcmp(row.name, name) == 0) return 1;
    }
    return 0;
}

static int is_same(const strait_snapshot_row *a, const strait_snapshot_row *b) {
    return strcmp(a->name, b->name) == 0 && a->dtype == b->dtype && a->is_state == b->is_state &&
           a->rows == b->rows && a->cols == b->cols;
}

/* "F32 24 x 40, a weight" */
static const char *describe(const strait_snapshot_row *row, char text[SHAPE_TEXT]) {
    (void)snprintf(text, SHAPE_TEXT, "%s %lld x %lld, %s", strait_safetensors_dtype(row->dtype),
                   (long long)row->rows, (long long)row->cols,
                   row->is_state ? "state" : "a weight");
    return text;
}

/* Reports two different rows at the same position. */
static strait_err differ(const strait_snapshot_row *found, const strait_snapshot_row *wanted) {
    char is[SHAPE_TEXT];
    char should[SHAPE_TEXT];
    if (strcmp(found->name, wanted->name) != 0)
        return STRAIT_FAIL(STRAIT_EDATA, "tensor \"%s\" found where \"%s\" is expected",
                           found->name, wanted->name);
    return STRAIT_FAIL(STRAIT_EDATA, "tensor \"%s\" is %s, expected %s", found->name,
                       describe(found, is), describe(wanted, should));
}

static strait_err is_missing(const strait_snapshot_row *row) {
    char text[SHAPE_TEXT];
    return STRAIT_FAIL(STRAIT_EDATA, "tensor \"%s\" (%s) is missing", row->name,
                       describe(row, text));
}

static strait_err is_unexpected(const strait_snapshot_row *row) {
    return STRAIT_FAIL(STRAIT_EDATA, "tensor \"%s\" does not belong to this stage", row->name);
}

strait_err strait_snapshot_header_match(const unsigned char *data, size_t bytes,
                                        const unsigned char *wanted, size_t wanted_bytes) {
    strait_snapshot_sum sum = {0};
    strait_reader a = {data, bytes, 0};
    strait_reader b = {wanted, wanted_bytes, 0};
    int n_found = 0;
    int n_wanted = 0;
    STRAIT_TRY(strait_snapshot_header_sum(data, bytes, SIZE_MAX, &sum));
    STRAIT_TRY(strait_snapshot_header_head(&a, &n_found));
    STRAIT_TRY(strait_snapshot_header_head(&b, &n_wanted));
    for (int i = 0; i < n_found || i < n_wanted; i++) {
        strait_snapshot_row is = {0};
        strait_snapshot_row should = {0};
        if (i < n_found) STRAIT_TRY(strait_snapshot_header_row(&a, &is));
        if (i < n_wanted) STRAIT_TRY(strait_snapshot_header_row(&b, &should));
        if (is_same(&is, &should)) continue;
        if (i < n_wanted && !has_name(data, bytes, should.name)) return is_missing(&should);
        if (i >= n_wanted || !has_name(wanted, wanted_bytes, is.name)) return is_unexpected(&is);
        return differ(&is, &should);
    }
    return STRAIT_OK;
}
