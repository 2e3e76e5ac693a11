/* The keys that a host remembers, and the requests of its operator. */
#include "swarm/host/access/admission.h"

#include "base/clock.h"
#include "check.h"
#include "metastore/memory_store.h"
#include "swarm/host/access/operator.h"
#include "swarm/host/state.h"

#include <stdlib.h>

static struct host h; // large

static strait_fingerprint key_of(int i) {
    strait_fingerprint key = {{0}};
    memcpy(key.bytes, &i, sizeof i);
    return key;
}

static struct host_key *add(int i, int64_t seen_ns) {
    const strait_fingerprint key = key_of(i);
    struct host_key *added = strait_host_add_key(&h, &key);
    CHECK(added != NULL);
    added->seen_ns = seen_ns;
    return added;
}

static int is_remembered(int i) {
    const strait_fingerprint key = key_of(i);
    return strait_host_find_key(&h, &key) != NULL;
}

/* However many keys come, there is a place for the next one. */
static void forgets_keys_without_work_first(void **state) {
    (void)state;
    memset(&h, 0, sizeof h);
    add(0, 1)->must_keep = 1;
    add(1, 2)->is_banned = 1;
    for (int i = 2; i < STRAIT_HOST_KEYS_MAX; i++)
        (void)add(i, 10000 - i);
    for (int i = 0; i < 1000; i++)
        (void)add(STRAIT_HOST_KEYS_MAX + i, 20000 + i);
    CHECK(h.admission.n_keys == STRAIT_HOST_KEYS_MAX);
    CHECK(is_remembered(0) && is_remembered(1) && is_remembered(2));
    CHECK(!is_remembered(STRAIT_HOST_KEYS_MAX - 1)); // it was gone longest
    CHECK(is_remembered(STRAIT_HOST_KEYS_MAX + 999));
}

static void forgets_workers_before_banned_keys(void **state) {
    (void)state;
    memset(&h, 0, sizeof h);
    add(0, 1)->is_banned = 1;
    for (int i = 1; i < STRAIT_HOST_KEYS_MAX; i++)
        add(i, 10 + i)->must_keep = 1;
    (void)add(STRAIT_HOST_KEYS_MAX, 9999);
    CHECK(is_remembered(0) && !is_remembered(1) && is_remembered(2));
}

/* ---- records ---- */

struct counted {
    int n, has_last;
};

static strait_err count_record(void *user, const strait_metastore_entry *entry) {
    struct counted *counted = user;
    const strait_fingerprint last = key_of(STRAIT_HOST_RECORDS + 9);
    char text[STRAIT_FINGERPRINT_TEXT];
    strait_fingerprint_text(&last, text);
    counted->n += strncmp(entry->key, "record/", 7) == 0;
    counted->has_last |= strstr(entry->key, text) != NULL;
    return STRAIT_OK;
}

static struct strait_memory_store *memory;

static void open_store(void) {
    uint64_t term = 0;
    CHECK_OK(strait_memory_store_open(&memory));
    CHECK_OK(strait_metastore_open(
        &(strait_metastore_config){
            .store = "memory", .run = "run", .owner = "host", .ttl_ms = 1000, .memory = memory},
        &h.persistence.metastore));
    CHECK_OK(strait_metastore_claim(h.persistence.metastore, &term));
}

static void close_store(void) {
    strait_metastore_close(&h.persistence.metastore);
    strait_memory_store_close(&memory);
}

/* Keys cost nothing, so what is stored about them is bounded; the oldest goes first. */
static void removes_the_oldest_of_too_many_records(void **state) {
    (void)state;
    struct counted counted = {0};
    memset(&h, 0, sizeof h);
    open_store();
    for (int i = 0; i < STRAIT_HOST_RECORDS + 10; i++) {
        h.coordinator.workers[0].key = key_of(i);
        CHECK_OK(strait_host_save_record(&h, 0));
        CHECK_OK(strait_host_save_record(&h, 0)); // again: its own entry changes
    }
    CHECK_OK(strait_metastore_read(h.persistence.metastore, "", count_record, &counted));
    CHECK(counted.n == STRAIT_HOST_RECORDS && counted.has_last);
    close_store();
}

/* ---- slots ---- */

static int n_closed;
static struct strait_link *closed_link;

static void close_link(struct strait_link *link, strait_err why) {
    (void)why;
    n_closed++;
    closed_link = link;
}

static const struct strait_transport_ops ops = {.close = close_link};
static struct strait_transport transport = {.ops = &ops};
static struct strait_link links[STRAIT_SWARM_WORKERS];

/* Connects worker `i` from an address, as a spare. */
static void connect_spare(int i, unsigned char address) {
    links[i] = (struct strait_link){.transport = &transport, .source_address = {address}};
    h.links.items[i] = (struct connection){.link = &links[i], .worker = i};
    h.links.of_worker[i] = i;
    h.coordinator.workers[i] = (strait_swarm_worker){
        .key = key_of(i), .is_known = 1, .is_connected = 1, .stage = -1};
    (void)add(i, 1);
}

/* All connections are taken, most by one address: one of its spares gives way to another address.
 */
static void idle_spares_of_one_address_give_way(void **state) {
    (void)state;
    memset(&h, 0, sizeof h);
    n_closed = 0;
    for (int i = 0; i < STRAIT_SWARM_WORKERS; i++)
        connect_spare(i, i < 20 ? 1 : 2);
    for (int i = 20; i < 200; i++) // these have worked
        h.admission.keys[i].must_keep = 1;
    const struct strait_link same = {.source_address = {2}}, other = {.source_address = {3}};
    strait_host_make_slot(&h, &same);
    CHECK(n_closed == 0);
    strait_host_make_slot(&h, &other);
    CHECK(n_closed == 1 && closed_link->source_address[0] == 2);
    CHECK(closed_link - links >= 200);
}

static void expect_request(const char *text, const char *reason) {
    strait_operator_request request;
    const strait_err err = strait_operator_parse(text, &request);
    if (err != STRAIT_ECONFIG || strstr(strait_err_detail(), reason) == NULL)
        fail_msg("%s: %s", text, strait_err_detail());
}

static void refuses_malformed_requests(void **state) {
    (void)state;
    expect_request("", "");
    expect_request("kick", "");
    expect_request("[]", "object");
    expect_request("{}", "unknown command ''");
    expect_request("{\"command\": \"erase\"}", "unknown command 'erase'");
    expect_request("{\"command\": 3}", "unknown command");
    expect_request("{\"command\": \"kick\"}", "no worker is named");
    expect_request("{\"command\": \"ban\", \"target\": \"\"}", "no worker is named");
    expect_request("{\"command\": \"kick\", \"target\": \"w\", \"seconds\": -1}", "\"seconds\"");
    expect_request("{\"command\": \"kick\", \"target\": \"w\", \"seconds\": \"1\"}", "\"seconds\"");
    expect_request("{\"command\": \"invite\", \"uses\": 4294967296}", "\"uses\"");
    expect_request("{\"command\": \"revoke\", \"id\": 1e300}", "\"id\"");
    char text[256];
    (void)snprintf(text, sizeof text, "{\"command\": \"kick\", \"target\": \"%065d\"}", 0);
    expect_request(text, "more than 64");
}

static void requests_survive_being_sent(void **state) {
    (void)state;
    for (int kind = 0; kind < STRAIT_OPERATOR_KINDS; kind++) {
        const strait_operator_request sent = {.kind = (strait_operator_kind)kind,
                                              .target = "a \"name\"",
                                              .seconds = 2.5,
                                              .uses = UINT32_MAX,
                                              .id = 7};
        strait_operator_request got;
        char *text = strait_operator_format(&sent);
        CHECK(text != NULL && strchr(text, '\n') == NULL);
        CHECK_OK(strait_operator_parse(text, &got));
        CHECK(got.kind == sent.kind && strcmp(got.target, sent.target) == 0 &&
              got.seconds == sent.seconds && got.uses == sent.uses && got.id == sent.id);
        free(text);
    }
}

/* ---- lines of events.log ---- */

static int n_lines;
static char last_line[512];

static void on_noted(void *user, const char *text) {
    (void)user;
    n_lines++;
    (void)snprintf(last_line, sizeof last_line, "%s", text);
}

/* Returns its slot. */
static int join(int i) {
    strait_swarm_report report = {.name = "flapping"};
    strait_host_feed_coordinator(
        &h, &(strait_swarm_event){.kind = STRAIT_SWARM_JOIN,
                                  .key = key_of(i),
                                  .report = &report,
                                  .inventory = strait_snapshot_inventory_empty()});
    const strait_fingerprint key = key_of(i);
    return strait_coordinator_find(&h.coordinator, &key);
}

static void lose(int slot) {
    strait_host_feed_coordinator(&h,
                                 &(strait_swarm_event){.kind = STRAIT_SWARM_LOST, .worker = slot});
}

static void join_and_leave(int i) {
    lose(join(i));
}

static void begin_host(void) {
    static const strait_host_spec spec = {.events = {.noted = on_noted}};
    const strait_swarm_config config = {.n_stages = 1, .lease_ns = 1};
    memset(&h, 0, sizeof h);
    h.spec = &spec;
    for (int i = 0; i < STRAIT_SWARM_WORKERS; i++)
        h.links.of_worker[i] = -1;
    strait_coordinator_init(&h.coordinator, &config);
    CHECK_OK(strait_msg_pool_open(&h.pool));
    n_lines = 0;
}

/* A worker that reconnects again and again cannot push what it did out of the log. What is left out
 * is counted, and another worker still gets its lines. */
static void limits_lines_about_workers_that_come_and_go(void **state) {
    (void)state;
    enum {
        MANY = 1000
    };
    begin_host();
    for (int i = 0; i < MANY; i++)
        join_and_leave(1);
    CHECK(n_lines >= 20 && n_lines <= 40); // some more on a busy machine
    const int64_t n_left_out = h.admission.n_left_out;
    CHECK(n_left_out == 2 * MANY - n_lines);
    join_and_leave(2);
    CHECK(strstr(last_line, "connection lost") != NULL && n_left_out == h.admission.n_left_out);
    strait_host_sum_up(&h, strait_clock_ns());
    char expected[64];
    (void)snprintf(expected, sizeof expected, "suppressed %lld more lines", (long long)n_left_out);
    CHECK(strstr(last_line, expected) != NULL && strstr(last_line, "flapping") != NULL);
    n_lines = 0;
    strait_host_sum_up(&h, strait_clock_ns() + INT64_C(120000000000));
    CHECK(n_lines == 0); // once
    /* Nor do many keys together. */
    for (int i = 10; i < 10 + 4 * MANY; i++)
        join_and_leave(i);
    CHECK(n_lines <= 2 * STRAIT_SWARM_WORKERS + 60 && h.admission.n_left_out > 0);
    strait_msg_pool_close(&h.pool);
}

/* A pipeline that is left out, which ends a tick of an average. */
static void logs_pipelines_that_are_left_out(void **state) {
    (void)state;
    struct strait_coordinator *co = &h.coordinator;
    begin_host();
    for (int i = 0; i < 1000; i++)
        join_and_leave(1);
    const int lead = join(1), other = join(2);
    co->config.has_pipelines = 1;
    co->config.lease_ns = co->config.stall_timeout_ns = INT64_MAX;
    co->phase = STRAIT_PHASE_WORK;
    co->goal.is_average = 2;
    co->owner[0] = lead;
    co->workers[lead].stage = 0;
    co->workers[lead].standing.awaited_replica = 2;
    co->is_awaited[0] = co->n_helpers[0] = 1;
    co->helper[0][0] = other;
    co->workers[other].helps = 0;
    co->workers[other].replica = co->workers[other].pipeline = co->workers[other].keeps_state = 1;
    co->workers[other].inventory.live = (strait_live_state){.stage = 0};
    n_lines = 0;
    strait_host_feed_coordinator(&h, &(strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    CHECK(co->workers[lead].stage < 0 && co->workers[lead].is_connected);
    CHECK(n_lines >= 2 && strstr(last_line, "leaving out this pipeline") != NULL);
    strait_msg_pool_close(&h.pool);
}

/* The loss of an owner is logged whatever else the worker did, that of a spare is not. */
static void logs_in_any_case_what_costs_others_something(void **state) {
    (void)state;
    begin_host();
    open_store();
    for (int i = 0; i < 1000; i++)
        join_and_leave(1);
    n_lines = 0;
    int slot = join(1);
    strait_host_feed_coordinator(&h, &(strait_swarm_event){.kind = STRAIT_SWARM_TICK});
    CHECK(!h.coordinator.workers[slot].is_connected && n_lines == 0); // its lease is over
    slot = join(1);
    h.coordinator.workers[slot].stage = 0;
    h.coordinator.owner[0] = slot;
    lose(slot);
    CHECK(n_lines == 1 && strstr(last_line, "connection lost") != NULL);
    /* So is an owner that replaces its own link, which ends the generation. */
    (void)join(1);
    n_lines = 0;
    (void)join(1);
    CHECK(n_lines == 1 && strstr(last_line, "reconnected") != NULL);
    close_store();
    strait_msg_pool_close(&h.pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forgets_keys_without_work_first),
        cmocka_unit_test(forgets_workers_before_banned_keys),
        cmocka_unit_test(removes_the_oldest_of_too_many_records),
        cmocka_unit_test(idle_spares_of_one_address_give_way),
        cmocka_unit_test(refuses_malformed_requests),
        cmocka_unit_test(requests_survive_being_sent),
        cmocka_unit_test(limits_lines_about_workers_that_come_and_go),
        cmocka_unit_test(logs_pipelines_that_are_left_out),
        cmocka_unit_test(logs_in_any_case_what_costs_others_something),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
