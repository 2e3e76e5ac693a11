/* table.c - see table.h. A sorted array of pointers: a run has few entries and rarely changes them,
 * and reads are by prefix in the order of keys. */
#include "metastore/table.h"

#include "base/alloc.h"
#include "metastore/metastore_ops.h"

#include <string.h>

enum {
    FIRST_CAPACITY = 64 // rows; most runs need no more
};

void strait_metastore_table_fini(struct strait_metastore_table *table) {
    for (size_t i = 0; i < table->n_rows; i++)
        strait_alloc_free(table->rows[i]);
    strait_alloc_free(table->rows);
    *table = (struct strait_metastore_table){0};
}

/* After apply there is nothing left to free. */
void strait_metastore_batch_fini(struct strait_metastore_batch *batch) {
    for (int i = 0; i < batch->n_rows; i++)
        strait_alloc_free(batch->rows[i]);
    *batch = (struct strait_metastore_batch){.n_rows = 0};
}

/* Returns the index of the first row whose key is not below `key`. */
static size_t lower_bound(const struct strait_metastore_table *table, const char *key) {
    size_t low = 0, high = table->n_rows; // the result is in [low, high]
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (strcmp(table->rows[middle]->entry.key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int is_at(const struct strait_metastore_table *table, size_t i, const char *key) {
    return i < table->n_rows && strcmp(table->rows[i]->entry.key, key) == 0;
}

/* Returns what an entry counts towards the limit of bytes. */
static size_t counted_bytes(const strait_metastore_entry *entry) {
    return strlen(entry->key) + entry->bytes;
}

strait_err strait_metastore_table_check(const struct strait_metastore_table *table,
                                        const strait_metastore_change *changes, int n_changes) {
    size_t n_rows = table->n_rows, n_bytes = table->n_bytes;
    for (int i = 0; i < n_changes; i++) {
        const strait_metastore_change *c = &changes[i];
        const size_t at = lower_bound(table, c->key);
        const int exists = is_at(table, at, c->key);
        const uint64_t found = exists ? table->rows[at]->entry.version : 0;
        const uint64_t expected = c->expected == STRAIT_METASTORE_ABSENT ? 0 : c->expected;
        if (c->expected != STRAIT_METASTORE_ANY && found != expected)
            return strait_metastore_fail_expected(c, found);
        /* Replaced and removed bytes are not subtracted: the bound is checked on the safe side. */
        n_rows += c->data != NULL && !exists;
        if (c->data != NULL) n_bytes += strlen(c->key) + c->bytes;
    }
    if (n_rows > STRAIT_METASTORE_ENTRIES_MAX || n_bytes > STRAIT_METASTORE_TOTAL_MAX)
        return STRAIT_FAIL(
            STRAIT_EINVAL, "the metastore is full: %zu entries of %zu bytes, at most %d of %d",
            n_rows, n_bytes, STRAIT_METASTORE_ENTRIES_MAX, STRAIT_METASTORE_TOTAL_MAX);
    return STRAIT_OK;
}

/* Allocates space for every row that the batch may add, so that apply cannot fail. */
static strait_err reserve(struct strait_metastore_table *table, int n_more) {
    const size_t want = table->n_rows + (size_t)n_more;
    if (want <= table->capacity) return STRAIT_OK;
    size_t capacity = table->capacity > 0 ? 2 * table->capacity : FIRST_CAPACITY;
    if (capacity < want) capacity = want;
    void *rows = (void *)table->rows;
    STRAIT_TRY(strait_alloc_grow(&rows, table->capacity, capacity, sizeof *table->rows,
                                 "metastore entries"));
    table->rows = rows;
    table->capacity = capacity;
    return STRAIT_OK;
}

strait_err strait_metastore_table_prepare(struct strait_metastore_table *table,
                                          struct strait_metastore_batch *batch,
                                          const strait_metastore_change *change) {
    const size_t key_bytes = strlen(change->key) + 1;
    const size_t bytes = change->data != NULL ? change->bytes : 0;
    void *memory = NULL;
    STRAIT_TRY(reserve(table, batch->n_rows + 1));
    STRAIT_TRY(strait_alloc(1, sizeof(struct strait_metastore_row) + key_bytes + bytes + 1,
                            "metastore entry", &memory));
    /* Row, key and value share one allocation, so that apply has nothing to allocate. */
    struct strait_metastore_row *row = memory;
    char *key = (char *)(row + 1);
    memcpy(key, change->key, key_bytes);
    row->entry = (strait_metastore_entry){.key = key, .bytes = bytes};
    if (change->data != NULL) {
        if (bytes > 0) memcpy(key + key_bytes, change->data, bytes);
        row->entry.data = (const unsigned char *)key + key_bytes;
    }
    batch->rows[batch->n_rows++] = row;
    return STRAIT_OK;
}

/* Replaces, inserts or removes one entry. Takes `row`. */
static void apply_row(struct strait_metastore_table *table, struct strait_metastore_row *row) {
    const size_t at = lower_bound(table, row->entry.key);
    const size_t n_after = table->n_rows - at;
    if (is_at(table, at, row->entry.key)) {
        table->n_bytes -= counted_bytes(&table->rows[at]->entry);
        strait_alloc_free(table->rows[at]);
        if (row->entry.data == NULL) {
            memmove((void *)&table->rows[at], (void *)&table->rows[at + 1],
                    (n_after - 1) * sizeof(void *));
            table->n_rows--;
        }
    } else if (row->entry.data != NULL) {
        memmove((void *)&table->rows[at + 1], (void *)&table->rows[at], n_after * sizeof(void *));
        table->n_rows++;
    }
    if (row->entry.data == NULL) {
        strait_alloc_free(row);
        return;
    }
    table->rows[at] = row;
    table->n_bytes += counted_bytes(&row->entry);
}

void strait_metastore_table_apply(struct strait_metastore_table *table,
                                  struct strait_metastore_batch *batch, uint64_t version) {
    for (int i = 0; i < batch->n_rows; i++) {
        batch->rows[i]->entry.version = version;
        apply_row(table, batch->rows[i]);
    }
    batch->n_rows = 0; // the table owns the rows now
}

/* All keys with a prefix are neighbours in the sorted array. */
strait_err strait_metastore_table_read(const struct strait_metastore_table *table,
                                       const char *prefix, strait_metastore_visit *visit,
                                       void *user) {
    const size_t n = strlen(prefix);
    for (size_t i = lower_bound(table, prefix); i < table->n_rows; i++) {
        if (strncmp(table->rows[i]->entry.key, prefix, n) != 0) break;
        STRAIT_TRY(visit(user, &table->rows[i]->entry));
    }
    return STRAIT_OK;
}
