/* header.h - parses the header of a snapshot, the list of its tensors (snapshot.h has the
 * layout). The bytes may come from an untrusted worker: an invalid header is STRAIT_EPROTO in all
 * functions. */
#pragma once

#include "base/bytes.h"
#include "base/error.h"
#include "tensor/param.h"

/* One tensor. */
typedef struct strait_snapshot_tensor {
    char name[STRAIT_PARAM_NAME + 2];
    strait_dtype dtype;
    int is_state;
    int64_t rows, cols;
    size_t bytes; // of its values
} strait_snapshot_tensor;

typedef struct strait_snapshot_sizes {
    int n;                          // number of tensors
    size_t list_bytes, value_bytes; // of the header, and of all values
} strait_snapshot_sizes;

extern const char strait_snapshot_magic[4];

/* Reports an invalid header; returns STRAIT_EPROTO. */
strait_err strait_snapshot_header_fail(void);

/* Read the beginning of a header with the number of tensors, and then one tensor per call. */
strait_err strait_snapshot_header_read_count(strait_reader *r, int *n);
strait_err strait_snapshot_header_read_tensor(strait_reader *r, strait_snapshot_tensor *out);

/* Parses the header at the beginning of `data` and adds up the sizes. STRAIT_EPROTO when header and
 * values would exceed `limit` bytes. */
strait_err strait_snapshot_header_measure(const unsigned char *data, size_t bytes, size_t limit,
                                          strait_snapshot_sizes *out);

/* Checks that the header at the beginning of `data` has exactly the tensors of `wanted`, a header
 * of our own, in the same order. STRAIT_EDATA names the first tensor that is missing, unexpected,
 * or of another type or shape. */
strait_err strait_snapshot_header_match(const unsigned char *data, size_t bytes,
                                        const unsigned char *wanted, size_t wanted_bytes);
