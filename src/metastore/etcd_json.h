/* etcd_json.h - builds requests to etcd and parses its answers, in the JSON of its v3 gateway.
 *
 * Keys and values are base64, 64-bit numbers are text, and zero or empty members are left out.
 * Functions that build JSON return a document that the caller releases, or NULL when memory is
 * short. */
#pragma once

#include "base/error.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* One key with its value, from an answer. */
typedef struct strait_etcd_pair {
    char *key;           // with a final zero
    unsigned char *data; // in the same memory as the key
    size_t bytes;
    uint64_t created, modified; // revisions
    int64_t lease;
} strait_etcd_pair;

void strait_etcd_pair_fini(strait_etcd_pair *pair); // accepts zeros

json_t *strait_etcd_bytes(const void *data, size_t bytes); // a base64 string
json_t *strait_etcd_text(const char *text);                // the same of a text
json_t *strait_etcd_number(uint64_t value);

/* Parts of a transaction: a read, a write, and a condition. */
json_t *strait_etcd_range(const char *key);
json_t *strait_etcd_put(const char *key, const void *data, size_t bytes);
/* `what` is CREATE or MOD, `field` the name of the revision. */
json_t *strait_etcd_compare(const char *key, const char *what, const char *field,
                            uint64_t revision);

/* Reads a number that may be absent: then 0. STRAIT_EDATA when it is not a number. */
strait_err strait_etcd_get(const json_t *object, const char *name, uint64_t *out);
/* Reads the revision of the store at the time of the answer. */
strait_err strait_etcd_revision(const json_t *answer, uint64_t *out);

/* Parses item i of the answer to a range, which the caller finalises; STRAIT_EDATA when it is
 * invalid. */
strait_err strait_etcd_pair_parse(const json_t *range, size_t i, strait_etcd_pair *out);
size_t strait_etcd_pairs(const json_t *range); // their number
/* Returns response i of a transaction, a range; NULL: there is none. */
const json_t *strait_etcd_range_of(const json_t *answer, size_t i);
