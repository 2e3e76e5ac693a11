/* memory.c - the memory backend, for tests: entries live in a memory store whose clock the test
 * advances, so that leases expire without waiting. */
#include "base/alloc.h"
#include "metastore/memory_store.h"
#include "metastore/metastore_ops.h"
#include "metastore/table.h"

#include <stdio.h>

struct strait_memory_store {
    struct strait_metastore_table entries;
    uint64_t version, term;                // both only grow
    const struct strait_metastore *leader; // NULL: nobody
    int64_t now_ms, until_ms;              // the lease expires at until_ms
    strait_err injected;                   // what every call fails with; STRAIT_OK: calls succeed
    int is_late; // commits take effect although they are reported as failed
};

strait_err strait_memory_store_open(struct strait_memory_store **out) {
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(struct strait_memory_store), "memory metastore", &memory));
    *out = memory;
    return STRAIT_OK;
}

void strait_memory_store_close(struct strait_memory_store **memory) {
    if (*memory == NULL) return;
    strait_metastore_table_fini(&(*memory)->entries);
    strait_alloc_free(*memory);
    *memory = NULL;
}

void strait_memory_store_advance_clock(struct strait_memory_store *memory, int64_t ms) {
    memory->now_ms += ms;
    if (memory->now_ms >= memory->until_ms) memory->leader = NULL; // the lease has expired
}

void strait_memory_store_inject_error(struct strait_memory_store *memory, strait_err err,
                                      int is_late) {
    memory->injected = err;
    memory->is_late = is_late;
}

/* Stands for the network: fails as a real backend would if it were unreachable. */
static strait_err reach(const struct strait_memory_store *memory) {
    if (memory->injected == STRAIT_OK) return STRAIT_OK;
    return STRAIT_FAIL(memory->injected, "the metastore is unreachable, as the test requested");
}

static strait_err init(struct strait_metastore *store, const char *where) {
    (void)where;
    if (store->config.memory == NULL)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "metastore 'memory' is for tests and needs config.memory");
    return STRAIT_OK;
}

static void fini(struct strait_metastore *store) {
    struct strait_memory_store *memory = store->config.memory;
    if (memory != NULL && memory->leader == store) memory->leader = NULL;
}

/* Claims at once or fails: there is no other thread that could release the lease meanwhile. */
static strait_err claim(struct strait_metastore *store) {
    struct strait_memory_store *memory = store->config.memory;
    STRAIT_TRY(reach(memory));
    if (memory->leader != NULL && memory->leader != store)
        return STRAIT_FAIL(STRAIT_EAGAIN, "run '%s' is led by '%s'", store->config.run,
                           memory->leader->config.owner);
    memory->leader = store;
    memory->until_ms = memory->now_ms + store->config.ttl_ms;
    store->term = ++memory->term;
    return STRAIT_OK;
}

/* A coordinator that lost its lease stays deposed even if nobody has claimed since: its term is not
 * the current one. */
static strait_err fence(const struct strait_metastore *store) {
    const struct strait_memory_store *memory = store->config.memory;
    if (memory->leader == store && memory->term == store->term) return STRAIT_OK;
    return strait_metastore_fail_deposed(store);
}

static strait_err check_lead(const struct strait_metastore *store) {
    STRAIT_TRY(reach(store->config.memory));
    return fence(store);
}

static strait_err renew(struct strait_metastore *store) {
    struct strait_memory_store *memory = store->config.memory;
    STRAIT_TRY(check_lead(store));
    memory->until_ms = memory->now_ms + store->config.ttl_ms;
    return STRAIT_OK;
}

/* The entries stay, as those of a real store do. */
static strait_err resign(struct strait_metastore *store) {
    STRAIT_TRY(check_lead(store));
    store->config.memory->leader = NULL;
    return STRAIT_OK;
}

static int64_t lease_left_ms(const struct strait_metastore *store) {
    const struct strait_memory_store *memory = store->config.memory;
    return memory->leader == store ? memory->until_ms - memory->now_ms : 0;
}

/* Only the test moves the clock, so waiting here would never end. */
static strait_err await(struct strait_metastore *store, int wait_ms) {
    const struct strait_memory_store *memory = store->config.memory;
    STRAIT_TRY(reach(memory));
    if (memory->leader == NULL) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ETIMEDOUT, "run '%s' is still led by '%s' after %d ms",
                       store->config.run, memory->leader->config.owner, wait_ms);
}

static strait_err who(struct strait_metastore *store, strait_metastore_leader *out) {
    const struct strait_memory_store *memory = store->config.memory;
    STRAIT_TRY(reach(memory));
    *out = (strait_metastore_leader){.term = 0};
    if (memory->leader == NULL) return STRAIT_OK;
    out->term = memory->term;
    (void)snprintf(out->owner, sizeof out->owner, "%s", memory->leader->config.owner);
    return STRAIT_OK;
}

static strait_err commit(struct strait_metastore *store, const strait_metastore_change *changes,
                         int n_changes, uint64_t *out_version) {
    struct strait_memory_store *memory = store->config.memory;
    struct strait_metastore_batch batch = {.n_rows = 0};
    if (!memory->is_late) STRAIT_TRY(reach(memory));
    STRAIT_TRY(fence(store));
    STRAIT_TRY(strait_metastore_table_check(&memory->entries, changes, n_changes));
    strait_err err = STRAIT_OK;
    for (int i = 0; i < n_changes && err == STRAIT_OK; i++)
        err = strait_metastore_table_prepare(&memory->entries, &batch, &changes[i]);
    if (err == STRAIT_OK) {
        strait_metastore_table_apply(&memory->entries, &batch, ++memory->version);
        *out_version = memory->version;
    }
    strait_metastore_batch_fini(&batch);
    return err == STRAIT_OK ? reach(memory) : err;
}

static strait_err read_entries(struct strait_metastore *store, const char *prefix,
                               strait_metastore_visit *visit, void *user) {
    STRAIT_TRY(reach(store->config.memory));
    return strait_metastore_table_read(&store->config.memory->entries, prefix, visit, user);
}

const struct strait_metastore_ops strait_metastore_memory = {
    .scheme = "memory",
    .init = init,
    .fini = fini,
    .claim = claim,
    .renew = renew,
    .resign = resign,
    .lease_left_ms = lease_left_ms,
    .await = await,
    .who = who,
    .commit = commit,
    .read = read_entries,
};
