/* etcd_json.c - see etcd_json.h. Answers are checked like any other input: a malfunctioning proxy
 * in front of etcd must not make us read out of bounds or believe in a wrong revision. */
#include "metastore/etcd_json.h"

#include "base/alloc.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TEXT_MAX = 64 * 1024 * 1024 // of a base64 text: EVP_DecodeBlock takes an int
};

/* ---- building ---- */

json_t *strait_etcd_bytes(const void *data, size_t bytes) {
    void *memory = NULL;
    if (strait_alloc(4 * ((bytes + 2) / 3) + 1, 1, "base64", &memory) != STRAIT_OK) return NULL;
    const int n = EVP_EncodeBlock(memory, data, (int)bytes);
    json_t *text = json_stringn(memory, (size_t)n);
    strait_alloc_free(memory);
    return text;
}

json_t *strait_etcd_text(const char *text) {
    return strait_etcd_bytes(text, strlen(text));
}

json_t *strait_etcd_number(uint64_t value) {
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRIu64, value);
    return json_string(text);
}

json_t *strait_etcd_range(const char *key) {
    return json_pack("{s:{s:o}}", "request_range", "key", strait_etcd_text(key));
}

json_t *strait_etcd_put(const char *key, const void *data, size_t bytes) {
    return json_pack("{s:{s:o,s:o}}", "request_put", "key", strait_etcd_text(key), "value",
                     strait_etcd_bytes(data, bytes));
}

json_t *strait_etcd_compare(const char *key, const char *what, const char *field,
                            uint64_t revision) {
    return json_pack("{s:o,s:s,s:s,s:o}", "key", strait_etcd_text(key), "target", what, "result",
                     "EQUAL", field, strait_etcd_number(revision));
}

/* ---- parsing ---- */

/* 64-bit numbers are strings in etcd's JSON, small ones may be numbers. */
strait_err strait_etcd_get(const json_t *object, const char *name, uint64_t *out) {
    const json_t *value = json_object_get(object, name);
    char *end = NULL;
    *out = 0;
    if (value == NULL) return STRAIT_OK;
    if (json_is_integer(value) && json_integer_value(value) >= 0) {
        *out = (uint64_t)json_integer_value(value);
        return STRAIT_OK;
    }
    const char *text = json_string_value(value);
    const int is_number = text != NULL && text[0] >= '0' && text[0] <= '9' && strlen(text) <= 20;
    const uint64_t number = is_number ? strtoull(text, &end, 10) : 0;
    if (!is_number || *end != 0)
        return STRAIT_FAIL(STRAIT_EDATA, "etcd: '%s' in an answer is not a number", name);
    *out = number;
    return STRAIT_OK;
}

strait_err strait_etcd_revision(const json_t *answer, uint64_t *out) {
    STRAIT_TRY(strait_etcd_get(json_object_get(answer, "header"), "revision", out));
    if (*out > 0) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EDATA, "etcd: an answer without a revision");
}

void strait_etcd_pair_fini(strait_etcd_pair *pair) {
    strait_alloc_free(pair->key);
    *pair = (strait_etcd_pair){.key = NULL};
}

/* Returns the most bytes that a base64 text decodes to; -1: it is not base64. */
static int64_t decoded_bytes(const json_t *text) {
    if (text == NULL) return 0;
    if (!json_is_string(text)) return -1;
    const size_t n = json_string_length(text);
    return n % 4 != 0 || n > TEXT_MAX ? -1 : (int64_t)(n / 4 * 3);
}

/* Writes decoded_bytes() bytes; returns how many are data, -1 for characters that are not base64.
 */
static int64_t decode(const json_t *text, unsigned char *out) {
    const size_t n = text != NULL ? json_string_length(text) : 0;
    const char *from = text != NULL ? json_string_value(text) : "";
    if (n == 0) return 0;
    for (size_t i = 0; i < n; i++) // EVP_DecodeBlock would skip white space
        if (from[i] <= ' ') return -1;
    const int all = EVP_DecodeBlock(out, (const unsigned char *)from, (int)n);
    if (all < 0) return -1;
    return all - (from[n - 1] == '=') - (from[n - 2] == '=');
}

/* Key and value are decoded into one allocation, each followed by a zero. Keys with a zero byte
 * are rejected: they would compare equal to shorter ones. */
static strait_err parse_bytes(const json_t *item, strait_etcd_pair *out) {
    const json_t *key = json_object_get(item, "key"), *value = json_object_get(item, "value");
    const int64_t key_capacity = decoded_bytes(key), value_capacity = decoded_bytes(value);
    void *memory = NULL;
    if (key_capacity <= 0 || value_capacity < 0)
        return STRAIT_FAIL(STRAIT_EDATA, "etcd: a key or value that is not base64");
    STRAIT_TRY(
        strait_alloc((size_t)(key_capacity + value_capacity) + 4, 1, "answer of etcd", &memory));
    out->key = memory;
    out->data = (unsigned char *)out->key + key_capacity + 1;
    const int64_t n_key = decode(key, memory), n_value = decode(value, out->data);
    if (n_key <= 0 || n_value < 0 || memchr(memory, 0, (size_t)n_key) != NULL)
        return STRAIT_FAIL(STRAIT_EDATA, "etcd: a key or value that is not base64");
    out->key[n_key] = 0;
    out->bytes = (size_t)n_value;
    return STRAIT_OK;
}

size_t strait_etcd_pairs(const json_t *range) {
    return json_array_size(json_object_get(range, "kvs"));
}

strait_err strait_etcd_pair_parse(const json_t *range, size_t i, strait_etcd_pair *out) {
    const json_t *item = json_array_get(json_object_get(range, "kvs"), i);
    strait_etcd_pair pair = {.key = NULL};
    uint64_t lease = 0;
    strait_err err = parse_bytes(item, &pair);
    if (err == STRAIT_OK) err = strait_etcd_get(item, "create_revision", &pair.created);
    if (err == STRAIT_OK) err = strait_etcd_get(item, "mod_revision", &pair.modified);
    if (err == STRAIT_OK) err = strait_etcd_get(item, "lease", &lease);
    if (err != STRAIT_OK) {
        strait_etcd_pair_fini(&pair);
        return err;
    }
    pair.lease = (int64_t)lease;
    *out = pair;
    return STRAIT_OK;
}

const json_t *strait_etcd_range_of(const json_t *answer, size_t i) {
    return json_object_get(json_array_get(json_object_get(answer, "responses"), i),
                           "response_range");
}
