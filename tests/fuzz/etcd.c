/* Fuzzes the parsers of answers of an etcd gateway. */
#include "base/json.h"
#include "metastore/etcd_json.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t bytes);

static void check_range(const json_t *range) {
    for (size_t i = 0; i < strait_etcd_pairs(range); i++) {
        strait_etcd_pair pair = {.key = NULL};
        if (strait_etcd_pair_parse(range, i, &pair) == STRAIT_OK) {
            if (strlen(pair.key) == 0 || (pair.bytes > 0 && pair.data == NULL)) abort();
            json_t *again = strait_etcd_bytes(pair.data, pair.bytes);
            json_decref(again);
        }
        strait_etcd_pair_fini(&pair);
    }
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t bytes) {
    json_t *answer = NULL;
    uint64_t number = 0;
    if (strait_json_parse((const char *)data, bytes, &answer) != STRAIT_OK) return 0;
    (void)strait_etcd_revision(answer, &number);
    (void)strait_etcd_get(answer, "ID", &number);
    (void)strait_etcd_get(json_object_get(answer, "result"), "TTL", &number);
    check_range(answer);
    for (size_t i = 0; i < 3; i++)
        check_range(strait_etcd_range_of(answer, i));
    json_decref(answer);
    return 0;
}
