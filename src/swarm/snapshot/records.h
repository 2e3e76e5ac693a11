/* records.h - the digests of the snapshots that the owners of a stage took, as they
 * reported them first. A copy of a snapshot, or one that a worker still has after it was away, is
 * restored only if its digest is the recorded one. Plain data, part of the durable state. */
#pragma once

#include "base/bytes.h"
#include "swarm/snapshot/inventory.h"

enum {
    STRAIT_SNAPSHOT_RECORDS = 8, // per stage: more than its owner and the neighbours can hold
    STRAIT_SNAPSHOT_RECORD_BYTES = 8 + 4 + STRAIT_DIGEST_BYTES,
    /* The most bytes of one stage's records as strait_snapshot_records_write writes them. */
    STRAIT_SNAPSHOT_RECORDS_BYTES = 1 + STRAIT_SNAPSHOT_RECORDS * STRAIT_SNAPSHOT_RECORD_BYTES
};

typedef struct strait_snapshot_record {
    int64_t step;
    uint32_t generation; // in which it was reported
    strait_digest digest;
} strait_snapshot_record;

/* Of one stage. Zeroed is empty. No two have the same step: when a step is computed again, the
 * records of the first time have been removed. */
typedef struct strait_snapshot_records {
    int n;
    strait_snapshot_record items[STRAIT_SNAPSHOT_RECORDS];
} strait_snapshot_records;

/* Returns the record of `step`; NULL: there is none. */
const strait_snapshot_record *strait_snapshot_records_find(const strait_snapshot_records *records,
                                                           int64_t step);

/* Adds a record of a step that has none. If there is no space, the oldest goes for which is_needed
 * (may be NULL) returns 0, or else the oldest of all. */
void strait_snapshot_records_add(strait_snapshot_records *records,
                                 const strait_snapshot_record *record,
                                 int (*is_needed)(const void *user, int64_t step),
                                 const void *user);

/* Removes the record of `step`, if there is one, or all records after `step`. */
void strait_snapshot_records_remove(strait_snapshot_records *records, int64_t step);
void strait_snapshot_records_trim(strait_snapshot_records *records, int64_t step);

/* As bytes of the durable state. Reading marks the reader as short when they are malformed. */
void strait_snapshot_records_write(const strait_snapshot_records *records, strait_writer *w);
void strait_snapshot_records_read(strait_reader *r, strait_snapshot_records *out);
