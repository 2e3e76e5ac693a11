/* record_memory.c - the memory store: one hub, its records, and time that a test moves. */
#include "base/alloc.h"
#include "swarm/record_hub.h"
#include "swarm/record_ops.h"
#include "swarm/record_table.h"

#include <stdio.h>

struct strait_record_hub {
    struct strait_record_table facts;
    uint64_t version, term;
    const struct strait_record *leader; // NULL: nobody
    int64_t now_ms, until_ms;           // the lease runs out at until_ms
    strait_err broken;
    int is_late;
};

strait_err strait_record_hub_open(struct strait_record_hub **out) {
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(struct strait_record_hub), "hub of records", &memory));
    *out = memory;
    return STRAIT_OK;
}

void strait_record_hub_close(struct strait_record_hub **hub) {
    if (*hub == NULL) return;
    strait_record_table_fini(&(*hub)->facts);
    strait_alloc_free(*hub);
    *hub = NULL;
}

void strait_record_hub_pass(struct strait_record_hub *hub, int64_t ms) {
    hub->now_ms += ms;
    if (hub->now_ms >= hub->until_ms) hub->leader = NULL;
}

void strait_record_hub_break(struct strait_record_hub *hub, strait_err err, int is_late) {
    hub->broken = err;
    hub->is_late = is_late;
}

static strait_err reach(const struct strait_record_hub *hub) {
    if (hub->broken == STRAIT_OK) return STRAIT_OK;
    return STRAIT_FAIL(hub->broken, "the store of record is out of reach, as the test asked");
}

static strait_err init(struct strait_record *record, const char *where) {
    (void)where;
    if (record->config.hub == NULL)
        return STRAIT_FAIL(STRAIT_ECONFIG, "store of record 'memory' is for tests: it wants a hub");
    return STRAIT_OK;
}

static void fini(struct strait_record *record) {
    struct strait_record_hub *hub = record->config.hub;
    if (hub != NULL && hub->leader == record) hub->leader = NULL;
}

static strait_err claim(struct strait_record *record) {
    struct strait_record_hub *hub = record->config.hub;
    STRAIT_TRY(reach(hub));
    if (hub->leader != NULL && hub->leader != record)
        return STRAIT_FAIL(STRAIT_EAGAIN, "run '%s' is led by '%s'", record->config.run,
                           hub->leader->config.owner);
    hub->leader = record;
    hub->until_ms = hub->now_ms + record->config.ttl_ms;
    record->term = ++hub->term;
    return STRAIT_OK;
}

/* A record that was deposed and whose place is free again is still deposed: terms tell. */
static strait_err fence(const struct strait_record *record) {
    const struct strait_record_hub *hub = record->config.hub;
    if (hub->leader == record && hub->term == record->term) return STRAIT_OK;
    return strait_record_fail_deposed(record);
}

static strait_err check_lead(const struct strait_record *record) {
    STRAIT_TRY(reach(record->config.hub));
    return fence(record);
}

static strait_err renew(struct strait_record *record) {
    struct strait_record_hub *hub = record->config.hub;
    STRAIT_TRY(check_lead(record));
    hub->until_ms = hub->now_ms + record->config.ttl_ms;
    return STRAIT_OK;
}

static strait_err resign(struct strait_record *record) {
    STRAIT_TRY(check_lead(record));
    record->config.hub->leader = NULL;
    return STRAIT_OK;
}

static int64_t sure_ms(const struct strait_record *record) {
    const struct strait_record_hub *hub = record->config.hub;
    return hub->leader == record ? hub->until_ms - hub->now_ms : 0;
}

/* Time stands still meanwhile, so there is no use in waiting. */
static strait_err await(struct strait_record *record, int wait_ms) {
    const struct strait_record_hub *hub = record->config.hub;
    STRAIT_TRY(reach(hub));
    if (hub->leader == NULL) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ETIMEDOUT, "run '%s' is still led by '%s' after %d ms",
                       record->config.run, hub->leader->config.owner, wait_ms);
}

static strait_err who(struct strait_record *record, strait_record_leader *out) {
    const struct strait_record_hub *hub = record->config.hub;
    STRAIT_TRY(reach(hub));
    *out = (strait_record_leader){.term = 0};
    if (hub->leader == NULL) return STRAIT_OK;
    out->term = hub->term;
    (void)snprintf(out->owner, sizeof out->owner, "%s", hub->leader->config.owner);
    return STRAIT_OK;
}

static strait_err commit(struct strait_record *record, const strait_record_change *changes,
                         int n_changes, uint64_t *out_version) {
    struct strait_record_hub *hub = record->config.hub;
    struct strait_record_batch batch = {.n_rows = 0};
    if (!hub->is_late) STRAIT_TRY(reach(hub));
    STRAIT_TRY(fence(record));
    STRAIT_TRY(strait_record_table_check(&hub->facts, changes, n_changes));
    strait_err err = STRAIT_OK;
    for (int i = 0; i < n_changes && err == STRAIT_OK; i++)
        err = strait_record_table_prepare(&hub->facts, &batch, &changes[i]);
    if (err == STRAIT_OK) {
        strait_record_table_apply(&hub->facts, &batch, ++hub->version);
        *out_version = hub->version;
    }
    strait_record_batch_drop(&batch);
    return err == STRAIT_OK ? reach(hub) : err;
}

static strait_err read_facts(struct strait_record *record, const char *prefix,
                             strait_record_visit *visit, void *user) {
    STRAIT_TRY(reach(record->config.hub));
    return strait_record_table_read(&record->config.hub->facts, prefix, visit, user);
}

const struct strait_record_ops strait_record_memory = {
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
    .read = read_facts,
};
