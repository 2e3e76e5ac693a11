/* etcd_json.h - what is asked of etcd and what it answers, in the JSON of its v3 gateway.
 *
 * Keys and values travel in base64, 64-bit numbers as text, and what is zero or empty is left out.
 * Makers return a document that the caller releases, or NULL without memory. */
#pragma once

#include "base/error.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* One key with its value, as an answer has it. */
typedef struct strait_etcd_pair {
    char *key;           // with an ending zero
    unsigned char *data; // in the same memory as the key
    size_t bytes;
    uint64_t created, modified; // revisions
    int64_t lease;
} strait_etcd_pair;

void strait_etcd_pair_fini(strait_etcd_pair *pair); // accepts zeros

json_t *strait_etcd_bytes(const void *data, size_t bytes); // a base64 string
json_t *strait_etcd_text(const char *text);                // the same of a text
json_t *strait_etcd_number(uint64_t value);

/* Parts of a transaction: what is to be read, written, and asked for first. */
json_t *strait_etcd_range(const char *key);
json_t *strait_etcd_put(const char *key, const void *data, size_t bytes);
/* `what` is CREATE or MOD, `field` the number's name. */
json_t *strait_etcd_compare(const char *key, const char *what, const char *field,
                            uint64_t revision);

/* A member that may be absent: then 0. STRAIT_EDATA when it is no number. */
strait_err strait_etcd_get(const json_t *object, const char *name, uint64_t *out);
/* The revision of the store when it answered. */
strait_err strait_etcd_revision(const json_t *answer, uint64_t *out);

/* Item i of the answer to a range; STRAIT_EDATA when it makes no sense. */
strait_err strait_etcd_pair_parse(const json_t *range, size_t i, strait_etcd_pair *out);
size_t strait_etcd_pairs(const json_t *range); // how many there are
/* Response i of a transaction, a range. NULL: it is not there. */
const json_t *strait_etcd_range_of(const json_t *answer, size_t i);
