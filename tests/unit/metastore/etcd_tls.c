/* The etcd backend over TLS, with certificates on both sides. */
#include "base/clock.h"
#include "etcd_cluster.h"
#include "metastore_rig.h"

#include <unistd.h>

enum {
    PATIENCE_MS = 600000, // only ends a hang: a busy machine under a sanitizer takes its time
    FIRST_MS = 1500
};

static struct cluster cluster;

static strait_err try_claim(const strait_metastore_config *config) {
    struct strait_metastore *store = NULL;
    uint64_t term = 0;
    CHECK_OK(strait_metastore_open(config, &store));
    const strait_err err = strait_metastore_claim(store, &term);
    char detail[512];
    (void)snprintf(detail, sizeof detail, "%s", strait_err_detail());
    strait_metastore_close(&store);
    return err == STRAIT_OK ? err : STRAIT_FAIL(err, "%s", detail);
}

/* A claim with these certificates fails for this reason. It is tried until its time is over, which
 * may be too short for a single attempt: reading the system's authorities takes a while. */
static void check_refused(strait_metastore_config config, const char *reason) {
    config.timeout_ms = FIRST_MS;
    while (config.timeout_ms < PATIENCE_MS) {
        CHECK_FAILS(try_claim(&config), STRAIT_ETIMEDOUT, "none of 3 members");
        if (strstr(strait_err_detail(), reason) != NULL) return;
        config.timeout_ms *= 2;
    }
    fail_msg("\"%s\" lacks \"%s\"", strait_err_detail(), reason);
}

/* Nothing here waits for a lease to expire, so it lasts as long as the test may take. */
static void test_both_sides_show_certificates(void **state) {
    (void)state;
    const strait_metastore_config config = {.store = cluster.store,
                                            .run = "tls",
                                            .ca_file = cluster.ca,
                                            .cert_file = cluster.cert,
                                            .key_file = cluster.key,
                                            .ttl_ms = PATIENCE_MS,
                                            .timeout_ms = PATIENCE_MS};
    const struct metastore_world world = {.config = config};
    struct strait_metastore *a = metastore_rig_open(&world, "alice");
    struct strait_metastore *b = metastore_rig_open(&world, "bob");
    (void)metastore_rig_claim(a);
    metastore_rig_put(a, "k", "sealed");
    metastore_rig_expect(b, "", "k=sealed ");
    CHECK_FAILS(strait_metastore_await(b, 100), STRAIT_ETIMEDOUT, "alice");
    CHECK_OK(strait_metastore_renew(a));
    strait_metastore_close(&a);
    strait_metastore_close(&b);
}

static void test_rejects_missing_or_unknown_certificates(void **state) {
    (void)state;
    strait_metastore_config config = {
        .store = cluster.store, .run = "tls", .owner = "mallory", .ca_file = cluster.ca};
    /* We show none: a member says so in an alert, or the line is gone before the alert is read. */
    check_refused(config, "");
    config.cert_file = cluster.cert;
    config.key_file = cluster.key;
    config.ca_file = NULL; // the system's authorities do not know ours
    check_refused(config, "certificate problem");
    config.ca_file = "/nowhere/ca.pem";
    check_refused(config, "/nowhere/ca.pem");
}

int main(void) {
    if (!cluster_is_installed() || access("/usr/bin/openssl", X_OK) != 0) {
        print_message("skipped: no /usr/bin/etcd or no /usr/bin/openssl here\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_sides_show_certificates),
        cmocka_unit_test(test_rejects_missing_or_unknown_certificates),
    };
    cluster_open(&cluster, 1);
    cluster_await(&cluster);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    cluster_close(&cluster);
    return failed;
}
