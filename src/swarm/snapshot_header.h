/* image_list.h - the list of tensors that an image begins with (image.h has its bytes), read from
 * what may come from anyone. */
#pragma once

#include "base/bytes.h"
#include "base/error.h"
#include "tensor/param.h"

/* One that makes no sense is STRAIT_EPROTO in all of these. */

typedef struct strait_snapshot_row {
    char name[STRAIT_PARAM_NAME + 2];
    strait_dtype dtype;
    int is_state;
    int64_t rows, cols;
    size_t bytes; // of its values
} strait_snapshot_row;

typedef struct strait_snapshot_sum {
    int n; // tensors
    size_t list_bytes, value_bytes;
} strait_snapshot_sum;

extern const char strait_snapshot_magic[4];

strait_err strait_snapshot_header_wrong(void); // says so

/* The beginning of a list, which *n rows follow; then each of them. */
strait_err strait_snapshot_header_head(strait_reader *r, int *n);
strait_err strait_snapshot_header_row(strait_reader *r, strait_snapshot_row *out);

/* Adds up the list that `data` begins with; at most `limit` bytes, values included. */
strait_err strait_snapshot_header_sum(const unsigned char *data, size_t bytes, size_t limit,
                                      strait_snapshot_sum *out);

/* Whether the list that `data` begins with has the tensors of `wanted`, a list of our own, in that
 * order and no others. STRAIT_EDATA names the first that is missing, too many, or of another kind
 * or shape. */
strait_err strait_snapshot_header_match(const unsigned char *data, size_t bytes,
                                        const unsigned char *wanted, size_t wanted_bytes);
