/* The etcd backend on a real cluster: the contract suite, and members that fail and recover. */
#include "base/clock.h"
#include "etcd_cluster.h"
#include "metastore/etcd_state.h"
#include "metastore_rig.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

static struct cluster cluster;
static char run[32];

static void open_etcd(struct metastore_world *world) {
    static int n_runs;
    (void)snprintf(run, sizeof run, "run-%d", ++n_runs);
    world->config = (strait_metastore_config){
        .store = cluster.store, .run = run, .ttl_ms = 60000, .timeout_ms = 20000};
}

static void close_etcd(struct metastore_world *world) {
    (void)world;
}

static strait_err ask(const char *path, json_t *request, json_t **out) {
    struct strait_etcd_http http = {.curl = NULL};
    const strait_metastore_config config = {.timeout_ms = 20000};
    CHECK_OK(strait_etcd_http_init(&http, cluster.store + strlen("etcd:"), &config));
    const strait_err err = strait_etcd_http_ask(&http, path, request, out);
    json_decref(request);
    strait_etcd_http_fini(&http);
    return err;
}

/* Revokes the lease at once; another test waits for a real expiry. */
static void expire_etcd(struct metastore_world *world) {
    char key[64];
    json_t *answer = NULL;
    strait_etcd_pair leader = {.key = NULL};
    (void)world;
    (void)snprintf(key, sizeof key, "strait/%s/leader", run);
    CHECK_OK(ask("/v3/kv/range", json_pack("{s:o}", "key", strait_etcd_text(key)), &answer));
    CHECK_OK(strait_etcd_pair_parse(answer, 0, &leader));
    json_decref(answer);
    CHECK_OK(ask("/v3/lease/revoke",
                 json_pack("{s:o}", "ID", strait_etcd_number((uint64_t)leader.lease)), &answer));
    json_decref(answer);
    strait_etcd_pair_fini(&leader);
}

static const struct metastore_kind etcd = {"etcd", open_etcd, close_etcd, expire_etcd};

/* ---- leases ---- */

static double seconds_since(int64_t start_ns) {
    return (double)(strait_clock_ns() - start_ns) * 1e-9;
}

static void rest_ms(int ms) {
    (void)nanosleep(&(struct timespec){ms / 1000, (long)(ms % 1000) * 1000000}, NULL);
}

/* Leads for longer than the lease, by renewing it; returns 0 when the machine was too busy. */
static int renews(struct strait_metastore *a, int64_t ttl_ms) {
    for (int i = 0; i < 6; i++) {
        rest_ms((int)ttl_ms / 5);
        if (strait_metastore_renew(a) != STRAIT_OK) return 0;
        const int64_t left_ms = strait_metastore_lease_left_ms(a);
        CHECK(left_ms <= ttl_ms);
        if (left_ms == 0) return 0;
    }
    const strait_metastore_change change = {.key = "step", .data = "1", .bytes = 1};
    uint64_t version = 0;
    return strait_metastore_commit(a, &change, 1, &version) == STRAIT_OK;
}

static void test_a_silent_leader_is_replaced(void **state) {
    (void)state;
    struct metastore_world world;
    open_etcd(&world);
    struct strait_metastore *a = NULL, *b = NULL;
    uint64_t first = 0;
    int is_kept = 0;
    for (world.config.ttl_ms = 5000; !is_kept; world.config.ttl_ms *= 4) {
        CHECK(world.config.ttl_ms < 200000);
        strait_metastore_close(&a);
        strait_metastore_close(&b);
        a = metastore_rig_open(&world, "alice");
        b = metastore_rig_open(&world, "bob");
        first = metastore_rig_claim(a);
        is_kept = renews(a, world.config.ttl_ms);
    }
    CHECK_FAILS(strait_metastore_await(b, 300), STRAIT_ETIMEDOUT, "still led by 'alice'");
    const int64_t start = strait_clock_ns();
    CHECK_OK(strait_metastore_await(b, 300000));
    print_message("a silent leader was gone after %.2f s\n", seconds_since(start));
    assert_int_equal(strait_metastore_lease_left_ms(a), 0); // it stopped before another could lead
    CHECK(metastore_rig_claim(b) > first);
    CHECK_FAILS(strait_metastore_put(a, "step", "2", 1), STRAIT_EDEPOSED, "'alice'");
    metastore_rig_expect(b, "", "step=1 ");
    strait_metastore_close(&a);
    strait_metastore_close(&b);
}

/* Another process leads for a while and resigns. */
static pid_t lead_for(const struct metastore_world *world, int ms) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child != 0) return child;
    struct strait_metastore *a = metastore_rig_open(world, "child");
    uint64_t term = 0;
    if (strait_metastore_claim(a, &term) != STRAIT_OK) _exit(1);
    if (strait_metastore_put(a, "child", "was here", 8) != STRAIT_OK) _exit(2);
    rest_ms(ms);
    strait_metastore_close(&a);
    _exit(0);
}

static void test_a_watch_ends_when_the_leader_resigns(void **state) {
    (void)state;
    struct metastore_world world;
    int status = -1;
    open_etcd(&world);
    struct strait_metastore *b = metastore_rig_open(&world, "bob");
    const pid_t child = lead_for(&world, 1500);
    strait_metastore_leader leader = {.term = 0};
    while (leader.term == 0)
        CHECK_OK(strait_metastore_who(b, &leader));
    CHECK_OK(strait_metastore_await(b, 50000)); // far less than its lease of 60 s
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    (void)metastore_rig_claim(b);
    metastore_rig_expect(b, "", "child=was here ");
    strait_metastore_close(&b);
}

/* ---- members ---- */

static void put_step(struct strait_metastore *a, int step) {
    char text[16];
    (void)snprintf(text, sizeof text, "%d", step);
    metastore_rig_put(a, "step", text);
}

static void expect_step(struct strait_metastore *a, int step) {
    char text[32];
    (void)snprintf(text, sizeof text, "step=%d ", step);
    metastore_rig_expect(a, "", text);
}

static void test_any_one_member_may_die(void **state) {
    (void)state;
    struct metastore_world world;
    open_etcd(&world);
    struct strait_metastore *a = metastore_rig_open(&world, "alice");
    const uint64_t term = metastore_rig_claim(a);
    double worst = 0;
    for (int turn = 0; turn < 2; turn++) { // the member that we ask, then the raft leader
        const int victim = turn == 0 ? 0 : cluster_leader(&cluster);
        cluster_signal(&cluster, victim, SIGKILL);
        for (int i = 0; i < 10; i++) {
            const int64_t start = strait_clock_ns();
            put_step(a, 100 * turn + i);
            if (seconds_since(start) > worst) worst = seconds_since(start);
        }
        expect_step(a, 100 * turn + 9);
        CHECK_OK(strait_metastore_renew(a));
        assert_int_equal(strait_metastore_term(a), term);
        cluster_start(&cluster, victim);
        cluster_await(&cluster);
    }
    print_message("the slowest commit after the death of a member took %.2f s\n", worst);
    strait_metastore_close(&a);
}

static void test_a_hanging_member_is_skipped(void **state) {
    (void)state;
    struct metastore_world world;
    open_etcd(&world);
    struct strait_metastore *a = metastore_rig_open(&world, "alice");
    (void)metastore_rig_claim(a);
    put_step(a, 1);
    cluster_signal(&cluster, 0, SIGSTOP); // alice asks the first member, which has answered so far
    const int64_t start = strait_clock_ns();
    put_step(a, 2);
    CHECK(seconds_since(start) < 300); // it does not wait for the member, which never answers
    put_step(a, 3);
    cluster_signal(&cluster, 0, SIGCONT);
    cluster_await(&cluster);
    expect_step(a, 3);
    strait_metastore_close(&a);
}

/* A request that hung somewhere arrives after later ones: here, in the hands of someone who takes
 * it, says nothing, and passes it on when told. */
struct keeper {
    int listener, port;
    char request[8192];
    size_t n;
};

static void *hold_one_request(void *arg) {
    struct keeper *k = arg;
    const int fd = accept(k->listener, NULL, NULL);
    ssize_t n = 1;
    while (n > 0 && k->n < sizeof k->request) { // until the client gives up
        n = recv(fd, k->request + k->n, sizeof k->request - k->n, 0);
        if (n > 0) k->n += (size_t)n;
    }
    (void)close(fd);
    (void)close(k->listener);
    return NULL;
}

static void deliver_late(const struct keeper *k, int port) {
    struct sockaddr_in where = {.sin_family = AF_INET,
                                .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)},
                                .sin_port = htons((uint16_t)port)};
    char answer[4096] = "";
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(connect(fd, (struct sockaddr *)&where, sizeof where) == 0);
    CHECK(send(fd, k->request, k->n, 0) == (ssize_t)k->n);
    CHECK(recv(fd, answer, sizeof answer - 1, 0) > 0);
    CHECK(strstr(answer, "200 OK") != NULL);    // it was received, and
    CHECK(strstr(answer, "succeeded") == NULL); // refused
    (void)close(fd);
}

static void test_a_delayed_request_changes_nothing(void **state) {
    (void)state;
    struct metastore_world world;
    struct keeper keeper = {.n = 0};
    struct sockaddr_in where = {.sin_family = AF_INET,
                                .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof where;
    pthread_t thread;
    char url[64];
    open_etcd(&world);
    struct strait_metastore *a = metastore_rig_open(&world, "alice");
    (void)metastore_rig_claim(a);
    put_step(a, 1);
    keeper.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(keeper.listener, (struct sockaddr *)&where, size) == 0);
    CHECK(listen(keeper.listener, 1) == 0);
    CHECK(getsockname(keeper.listener, (struct sockaddr *)&where, &size) == 0);
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%d", ntohs(where.sin_port));
    CHECK(pthread_create(&thread, NULL, hold_one_request, &keeper) == 0);
    struct strait_etcd *inside = a->state;
    const char *member = inside->http.members[inside->http.current];
    inside->http.members[inside->http.current] = url;
    put_step(a, 2);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(strstr(keeper.request, "/v3/kv/txn") != NULL);
    put_step(a, 3);
    deliver_late(&keeper, cluster.client_ports[0]);
    expect_step(a, 3);
    put_step(a, 4);
    expect_step(a, 4);
    for (int i = 0; i < inside->http.n_members; i++)
        if (inside->http.members[i] == url) inside->http.members[i] = member;
    strait_metastore_close(&a);
}

static void test_fails_within_the_timeout_without_members_and_recovers(void **state) {
    (void)state;
    struct metastore_world world;
    open_etcd(&world);
    world.config.ttl_ms = 9000;
    world.config.timeout_ms = 3000;
    struct strait_metastore *a = metastore_rig_open(&world, "alice");
    uint64_t term = 0, version = 0;
    while (strait_metastore_claim(a, &term) == STRAIT_ETIMEDOUT) {
    }
    CHECK(term > 0);
    const strait_metastore_change before = {.key = "step", .data = "1", .bytes = 1};
    while (strait_metastore_commit(a, &before, 1, &version) == STRAIT_ETIMEDOUT) {
    }
    CHECK(version > 0);
    for (int i = 0; i < CLUSTER_SIZE; i++)
        cluster_signal(&cluster, i, SIGKILL);
    const int64_t start = strait_clock_ns();
    const strait_metastore_change change = {.key = "step", .data = "2", .bytes = 1};
    CHECK_FAILS(strait_metastore_commit(a, &change, 1, &version), STRAIT_ETIMEDOUT,
                "none of 3 members answered within 3000 ms");
    CHECK(seconds_since(start) < 300.0);
    CHECK_FAILS(strait_metastore_renew(a), STRAIT_ETIMEDOUT, "repair the network");
    CHECK_FAILS(strait_metastore_read(a, "", metastore_rig_add, NULL), STRAIT_ETIMEDOUT,
                "are safe");
    CHECK_FAILS(strait_metastore_await(a, 100), STRAIT_ETIMEDOUT, "none of 3");
    while (strait_metastore_lease_left_ms(a) > 0)
        rest_ms(50);
    CHECK(seconds_since(start) < 600.0);
    for (int i = 0; i < CLUSTER_SIZE; i++)
        cluster_start(&cluster, i);
    cluster_await(&cluster);
    strait_err err = STRAIT_ETIMEDOUT;
    while (err == STRAIT_ETIMEDOUT) // after a restart, etcd extends all leases
        err = strait_metastore_commit(a, &change, 1, &version);
    CHECK(err == STRAIT_OK || err == STRAIT_EDEPOSED);
    if (err == STRAIT_EDEPOSED) {
        expect_step(a, 1);
        CHECK(metastore_rig_claim(a) > term);
        put_step(a, 2);
    }
    expect_step(a, 2);
    strait_metastore_close(&a);
}

/* ---- invalid input ---- */

static void test_rejects_invalid_configs(void **state) {
    (void)state;
    static const char *const wrong[] = {
        "etcd:",        "etcd:127.0.0.1:2379", "etcd:ftp://h:1",
        "etcd:http://", "etcd:http://a b:1",   "etcd:http://h:1,http://h/path"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const strait_metastore_config config = {.store = wrong[i], .run = "r", .owner = "o"};
        struct strait_metastore *a = NULL;
        CHECK_FAILS(strait_metastore_open(&config, &a), STRAIT_ECONFIG, "HOST:PORT");
    }
}

static void test_rejects_invalid_pairs(void **state) {
    (void)state;
    static const char *const bad[] = {"{\"kvs\":[{\"value\":\"YQ==\"}]}",
                                      "{\"kvs\":[{\"key\":\"YQ=\"}]}",
                                      "{\"kvs\":[{\"key\":5}]}",
                                      "{\"kvs\":[{\"key\":\"Y\\nQ=\"}]}",
                                      "{\"kvs\":[{\"key\":\"AA==\"}]}", // a zero byte
                                      "{\"kvs\":[{\"key\":\"YQ==\",\"mod_revision\":\"x\"}]}",
                                      "{\"kvs\":[{\"key\":\"YQ==\",\"lease\":\"-5\"}]}",
                                      "{\"kvs\":[]}",
                                      "[]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        strait_etcd_pair pair = {.key = NULL};
        json_t *range = json_loads(bad[i], 0, NULL);
        CHECK(range != NULL);
        CHECK_FAILS(strait_etcd_pair_parse(range, 0, &pair), STRAIT_EDATA, "etcd:");
        json_decref(range);
    }
    strait_etcd_pair pair = {.key = NULL};
    json_t *range = json_loads("{\"kvs\":[{\"key\":\"YWI=\",\"value\":\"AAEC\",\"mod_revision\":"
                               "\"18446744073709551615\",\"create_revision\":7}]}",
                               0, NULL);
    CHECK_OK(strait_etcd_pair_parse(range, 0, &pair));
    assert_string_equal(pair.key, "ab");
    assert_int_equal(pair.bytes, 3);
    assert_memory_equal(pair.data, "\0\1\2", 3);
    assert_int_equal(pair.modified, UINT64_MAX);
    assert_int_equal(pair.created, 7);
    strait_etcd_pair_fini(&pair);
    json_decref(range);
}

int main(void) {
    const struct CMUnitTest plain[] = {cmocka_unit_test(test_rejects_invalid_configs),
                                       cmocka_unit_test(test_rejects_invalid_pairs)};
    int failed = cmocka_run_group_tests(plain, NULL, NULL);
    if (!cluster_is_installed()) {
        print_message("skipped: no /usr/bin/etcd here (Debian package etcd-server)\n");
        return failed > 0 ? failed : 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_silent_leader_is_replaced),
        cmocka_unit_test(test_a_watch_ends_when_the_leader_resigns),
        cmocka_unit_test(test_any_one_member_may_die),
        cmocka_unit_test(test_a_hanging_member_is_skipped),
        cmocka_unit_test(test_a_delayed_request_changes_nothing),
        cmocka_unit_test(test_fails_within_the_timeout_without_members_and_recovers),
    };
    cluster_open(&cluster, 0);
    cluster_await(&cluster);
    failed += record_contract(&etcd);
    failed += cmocka_run_group_tests(tests, NULL, NULL);
    cluster_close(&cluster);
    return failed;
}
