/* A host and a worker in one process: what befalls the files they rely on. */
#include "swarm/host.h"

#include "port.h"
#include "swarm/lend.h"
#include "swarm/record.h"
#include "unit/pipeline/tiny_run.h"

#include <pthread.h>
#include <stdatomic.h>

static struct {
    scratch folder;
    strait_run run;
    struct strait_identity *host_key, *worker_key;
    char listen[STRAIT_ADDRESS_MAX];
    strait_lend_spec lend;
    pthread_t worker;
    int has_worker;       // in this start of the host
    atomic_int has_ended; // it has, with:
    strait_err ended;
    int approves_from, n_asked; // how often approval was asked for, and the first that is granted
    atomic_int n_failing;       // facts of members that the store will not take
    char notes[4096]; // all of them, a line each
} play;

/* Names that the linker makes. NOLINTBEGIN(*-naming,*-reserved-identifier,cert-dcl*) */
strait_err __real_strait_record_put(struct strait_record *record, const char *key, const void *data,
                                    size_t bytes);
strait_err __wrap_strait_record_put(struct strait_record *record, const char *key, const void *data,
                                    size_t bytes);

/* The store of the host: it fails as a full disk does. */
strait_err __wrap_strait_record_put(struct strait_record *record, const char *key, const void *data,
                                    size_t bytes) {
    if (strncmp(key, "member/", 7) == 0 && atomic_fetch_sub(&play.n_failing, 1) > 0)
        return STRAIT_FAIL(STRAIT_EIO, "the store: no space");
    return __real_strait_record_put(record, key, data, bytes);
}
/* NOLINTEND(*-naming,*-reserved-identifier,cert-dcl*) */

static int goes_on(void *user) {
    (void)user;
    return 0;
}

static void *work(void *arg) {
    (void)arg;
    play.ended = strait_lend(&play.lend);
    atomic_store(&play.has_ended, 1);
    return NULL;
}

static void on_invited(void *user, const char *line) {
    (void)user;
    CHECK_OK(strait_invite_parse(line, &play.lend.invite));
    assert_int_equal(pthread_create(&play.worker, NULL, work, NULL), 0);
    play.has_worker = 1;
}

static void on_noted(void *user, const char *text) {
    const size_t used = strlen(play.notes);
    (void)user;
    (void)snprintf(play.notes + used, sizeof play.notes - used, "%s\n", text);
}

static int approves(void *user, const strait_fingerprint *key, const char *name) {
    (void)user;
    (void)key;
    (void)name;
    return ++play.n_asked >= play.approves_from;
}

/* A host without its worker would wait for ever. */
static int must_stop(void *user) {
    (void)user;
    return atomic_load(&play.has_ended);
}

/* Starts the host, and a worker when it invites one; both end. */
static strait_err host(void) {
    const strait_host_spec spec = {
        .run = &play.run,
        .folder = scratch_at(&play.folder, "run"),
        .identity = play.host_key,
        .listen = play.listen,
        .lose_s = 10.0,
        .lease_s = 600.0,
        .stall_s = 600.0,
        .store_wait_s = 60.0,
        .session = {.must_stop = must_stop},
        .events = {.invited = on_invited,
                   .noted = on_noted,
                   .approves = play.approves_from > 0 ? approves : NULL}};
    play.has_worker = play.n_asked = 0;
    play.notes[0] = '\0';
    atomic_store(&play.has_ended, 0);
    const strait_err err = strait_host(&spec);
    if (play.has_worker) (void)pthread_join(play.worker, NULL);
    return err;
}

static int set_up(void **state) {
    (void)state;
    memset(&play, 0, sizeof play);
    play.folder = scratch_open();
    tiny_run(&play.folder, &play.run);
    play.run.device.threads = 1;
    CHECK_OK(strait_identity_make(&play.host_key));
    CHECK_OK(strait_identity_make(&play.worker_key));
    (void)snprintf(play.listen, sizeof play.listen, "127.0.0.1:%d", port_choose());
    play.lend = (strait_lend_spec){.identity = play.worker_key,
                                   .name = "worker",
                                   .listen = "127.0.0.1:0",
                                   .device = "cpu",
                                   .n_threads = 1,
                                   .give_up_ms = 60000,
                                   .events = {.must_stop = goes_on}};
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    strait_identity_close(&play.host_key);
    strait_identity_close(&play.worker_key);
    scratch_close(&play.folder);
    return 0;
}

static int count_notes(const char *words) {
    int n = 0;
    for (const char *at = play.notes; (at = strstr(at, words)) != NULL; at++)
        n++;
    return n;
}

/* ---- a store that fails for a moment ---- */

static void join_while_the_store_fails(int approves_from) {
    play.approves_from = approves_from;
    atomic_store(&play.n_failing, 2);
    CHECK_OK(host());
    assert_true(atomic_load(&play.n_failing) < 0); // it was asked again until it took the fact
    assert_int_equal(play.ended, STRAIT_OK);
    assert_int_equal(count_notes("'worker' waits to be let in: the store: no space"), 1);
    assert_int_equal(count_notes("is sent away"), 0);
}

static void who_was_approved_waits_for_the_store(void **state) {
    (void)state;
    join_while_the_store_fails(3); // not at once: it is asked for again
}

static void so_does_who_needs_no_approval(void **state) {
    (void)state;
    join_while_the_store_fails(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(who_was_approved_waits_for_the_store, set_up, tear_down),
        cmocka_unit_test_setup_teardown(so_does_who_needs_no_approval, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
