/* snapshot_header.h - parses the header of a snapshot, the list of its tensors (snapshot.h has the
 * layout). The bytes may come from an untrusted worker: an invalid header is STRAIT_EPROTO in all
 * functions. */
#pragma once

#include "base/bytes.h"
#include "base/error.h"
#include "tensor/param.h"

/* One tensor. */
typedef struct strait_snapshot_row {
    char name[STRAIT_PARAM_NAME + 2];
    strait_dtype dtype;
    int is_state;
    int64_t rows, cols;
    size_t bytes; // of its values
} strait_snapshot_row;

typedef struct strait_snapshot_sum {
    int n; // number of tensors
    size_t list_bytes, value_bytes;
} strait_snapshot_sum;

extern const char strait_snapshot_magic[4];

/* Reports an invalid header; returns STRAIT_EPROTO. */
strait_err strait_snapshot_header_wrong(void);

/* Read the beginning of a header, which *n rows follow, and then one row per call. */
strait_err strait_snapshot_header_head(strait_reader *r, int *n);
strait_err strait_snapshot_header_row(strait_reader *r, strait_snapshot_row *out);

/* Parses all rows at the beginning of `data` and adds up their sizes. STRAIT_EPROTO when header and
 * values would exceed `limit` bytes. */
strait_err strait_snapshot_header_sum(const unsigned char *data, size_t bytes, size_t limit,
                                      strait_snapshot_sum *out);

/* Checks that the header at the beginning of `data` has exactly the tensors of `wanted`, a header
 * of our own, in the same order. STRAIT_EDATA names the first tensor that is missing, unexpected,
 * or of another type or shape. */
strait_err strait_snapshot_header_match(const unsigned char *data, size_t bytes,
                                        const unsigned char *wanted, size_t wanted_bytes);
