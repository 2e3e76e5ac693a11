/* records.c - see records.h. The lists are short and unordered: a removed record gives its place to
 * the last one. */
#include "swarm/snapshot/records.h"

#include <string.h>

const strait_snapshot_record *strait_snapshot_records_find(const strait_snapshot_records *records,
                                                           int64_t step) {
    for (int i = 0; i < records->n; i++)
        if (records->items[i].step == step) return &records->items[i];
    return NULL;
}

static void remove_at(strait_snapshot_records *records, int i) {
    records->items[i] = records->items[--records->n];
}

/* Returns the index of the oldest record among those with is_needed equal to `needed`; -1: none. */
static int oldest(const strait_snapshot_records *records,
                  int (*is_needed)(const void *user, int64_t step), const void *user, int needed) {
    int best = -1;
    for (int i = 0; i < records->n; i++) {
        if ((is_needed != NULL && is_needed(user, records->items[i].step)) != needed) continue;
        if (best < 0 || records->items[i].step < records->items[best].step) best = i;
    }
    return best;
}

void strait_snapshot_records_add(strait_snapshot_records *records,
                                 const strait_snapshot_record *record,
                                 int (*is_needed)(const void *user, int64_t step),
                                 const void *user) {
    if (records->n == STRAIT_SNAPSHOT_RECORDS) {
        const int unneeded = oldest(records, is_needed, user, 0);
        remove_at(records, unneeded >= 0 ? unneeded : oldest(records, is_needed, user, 1));
    }
    records->items[records->n++] = *record;
}

void strait_snapshot_records_remove(strait_snapshot_records *records, int64_t step) {
    for (int i = records->n - 1; i >= 0; i--)
        if (records->items[i].step == step) remove_at(records, i);
}

void strait_snapshot_records_trim(strait_snapshot_records *records, int64_t step) {
    for (int i = records->n - 1; i >= 0; i--)
        if (records->items[i].step > step) remove_at(records, i);
}

void strait_snapshot_records_write(const strait_snapshot_records *records, strait_writer *w) {
    strait_writer_uint(w, (uint64_t)records->n, 1);
    for (int i = 0; i < records->n; i++) {
        const strait_snapshot_record *record = &records->items[i];
        strait_writer_uint(w, (uint64_t)record->step, 8);
        strait_writer_uint(w, record->generation, 4);
        strait_writer_copy(w, record->digest.bytes, STRAIT_DIGEST_BYTES);
    }
}

/* A count that is too large can only come from a damaged entry: the reader is marked as short,
 * which its caller reports. */
void strait_snapshot_records_read(strait_reader *r, strait_snapshot_records *out) {
    memset(out, 0, sizeof *out);
    const uint64_t n = strait_reader_uint(r, 1);
    if (n > STRAIT_SNAPSHOT_RECORDS) r->is_short = 1;
    for (uint64_t i = 0; i < n && !r->is_short; i++) {
        strait_snapshot_record *record = &out->items[out->n++];
        record->step = (int64_t)strait_reader_uint(r, 8);
        record->generation = (uint32_t)strait_reader_uint(r, 4);
        strait_reader_copy(r, record->digest.bytes, STRAIT_DIGEST_BYTES);
    }
}
