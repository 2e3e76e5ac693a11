/* memory.c - the memory backend, for tests: all entries live in a hub whose clock the test moves.
 */
#include "base/alloc.h"
#include "metastore/memory_hub.h"
#include "metastore/metastore_ops.h"
#include "metastore/table.h"

#include <stdio.h>

struct strait_metastore_hub {
    struct strait_metastore_table entries;
    uint64_t version, term;
    const struct strait_metastore *leader; // NULL: nobody
    int64_t now_ms, until_ms;              // the lease expires at until_ms
    strait_err broken;
    int is_late;
};

strait_err strait_metastore_hub_open(struct strait_metastore_hub **out) {
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(struct strait_metastore_hub), "memory metastore", &memory));
    *out = memory;
    return STRAIT_OK;
}

void strait_metastore_hub_close(struct strait_metastore_hub **hub) {
    if (*hub == NULL) return;
    strait_metastore_table_fini(&(*hub)->entries);
    strait_alloc_free(*hub);
    *hub = NULL;
}

void strait_metastore_hub_pass(struct strait_metastore_hub *hub, int64_t ms) {
    hub->now_ms += ms;
    if (hub->now_ms >= hub->until_ms) hub->leader = NULL;
}

void strait_metastore_hub_break(struct strait_metastore_hub *hub, strait_err err, int is_late) {
    hub->broken = err;
    hub->is_late = is_late;
}

static strait_err reach(const struct strait_metastore_hub *hub) {
    if (hub->broken == STRAIT_OK) return STRAIT_OK;
    return STRAIT_FAIL(hub->broken, "the metastore is unreachable, as the test requested");
}

static strait_err init(struct strait_metastore *store, const char *where) {
    (void)where;
    if (store->config.hub == NULL)
        return STRAIT_FAIL(STRAIT_ECONFIG, "metastore 'memory' is for tests and needs a hub");
    return STRAIT_OK;
}

static void fini(struct strait_metastore *store) {
    struct strait_metastore_hub *hub = store->config.hub;
    if (hub != NULL && hub->leader == store) hub->leader = NULL;
}

static strait_err claim(struct strait_metastore *store) {
    struct strait_metastore_hub *hub = store->config.hub;
    STRAIT_TRY(reach(hub));
    if (hub->leader != NULL && hub->leader != store)
        return STRAIT_FAIL(STRAIT_EAGAIN, "run '%s' is led by '%s'", store->config.run,
                           hub->leader->config.owner);
    hub->leader = store;
    hub->until_ms = hub->now_ms + store->config.ttl_ms;
    store->term = ++hub->term;
    return STRAIT_OK;
}

/* A coordinator that lost its lease stays deposed even if nobody has claimed since: its term is not
 * the current one. */
static strait_err fence(const struct strait_metastore *store) {
    const struct strait_metastore_hub *hub = store->config.hub;
    if (hub->leader == store && hub->term == store->term) return STRAIT_OK;
    return strait_metastore_fail_deposed(store);
}

static strait_err check_lead(const struct strait_metastore *store) {
    STRAIT_TRY(reach(store->config.hub));
    return fence(store);
}

static strait_err renew(struct strait_metastore *store) {
    struct strait_metastore_hub *hub = store->config.hub;
    STRAIT_TRY(check_lead(store));
    hub->until_ms = hub->now_ms + store->config.ttl_ms;
    return STRAIT_OK;
}

static strait_err resign(struct strait_metastore *store) {
    STRAIT_TRY(check_lead(store));
    store->config.hub->leader = NULL;
    return STRAIT_OK;
}

static int64_t sure_ms(const struct strait_metastore *store) {
    const struct strait_metastore_hub *hub = store->config.hub;
    return hub->leader == store ? hub->until_ms - hub->now_ms : 0;
}

/* Only the test moves the clock, so waiting here would never end. */
static strait_err await(struct strait_metastore *store, int wait_ms) {
    const struct strait_metastore_hub *hub = store->config.hub;
    STRAIT_TRY(reach(hub));
    if (hub->leader == NULL) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ETIMEDOUT, "run '%s' is still led by '%s' after %d ms",
                       store->config.run, hub->leader->config.owner, wait_ms);
}

static strait_err who(struct strait_metastore *store, strait_metastore_leader *out) {
    const struct strait_metastore_hub *hub = store->config.hub;
    STRAIT_TRY(reach(hub));
    *out = (strait_metastore_leader){.term = 0};
    if (hub->leader == NULL) return STRAIT_OK;
    out->term = hub->term;
    (void)snprintf(out->owner, sizeof out->owner, "%s", hub->leader->config.owner);
    return STRAIT_OK;
}

static strait_err commit(struct strait_metastore *store, const strait_metastore_change *changes,
                         int n_changes, uint64_t *out_version) {
    struct strait_metastore_hub *hub = store->config.hub;
    struct strait_metastore_batch batch = {.n_rows = 0};
    if (!hub->is_late) STRAIT_TRY(reach(hub));
    STRAIT_TRY(fence(store));
    STRAIT_TRY(strait_metastore_table_check(&hub->entries, changes, n_changes));
    strait_err err = STRAIT_OK;
    for (int i = 0; i < n_changes && err == STRAIT_OK; i++)
        err = strait_metastore_table_prepare(&hub->entries, &batch, &changes[i]);
    if (err == STRAIT_OK) {
        strait_metastore_table_apply(&hub->entries, &batch, ++hub->version);
        *out_version = hub->version;
    }
    strait_metastore_batch_drop(&batch);
    return err == STRAIT_OK ? reach(hub) : err;
}

static strait_err read_entries(struct strait_metastore *store, const char *prefix,
                               strait_metastore_visit *visit, void *user) {
    STRAIT_TRY(reach(store->config.hub));
    return strait_metastore_table_read(&store->config.hub->entries, prefix, visit, user);
}

const struct strait_metastore_ops strait_metastore_memory = {
    .scheme = "memory",
    .init = init,
    .fini = fini,
    .claim = claim,
    .renew = renew,
    .resign = resign,
    .sure_ms = sure_ms,
    .await = await,
    .who = who,
    .commit = commit,
    .read = read_entries,
};
