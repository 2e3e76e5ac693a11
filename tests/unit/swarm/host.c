/* Runs a host and a worker in one process, with a metastore that fails and with damaged
 * checkpoints. */
#include "swarm/host/host.h"

#include "metastore/metastore.h"
#include "metrics/metrics.h"
#include "port.h"
#include "swarm/worker/worker.h"
#include "unit/config/tiny_run.h"

#include <pthread.h>
#include <stdatomic.h>

static struct {
    scratch folder;
    strait_run run;
    struct strait_identity *host_key, *worker_key;
    char listen[STRAIT_ADDRESS_MAX];
    strait_worker_spec worker_spec;
    pthread_t worker;
    int has_worker;       // the host printed an invite, and the worker was started
    atomic_int has_ended; // the worker has ended, with result `ended`
    strait_err ended;
    int approves_from;    // the request for approval that is granted first; 0: no approval needed
    int n_asked;          // requests for approval so far
    atomic_int n_failing; // puts of member entries that will still fail
    int n_saved;
    char notes[4096]; // all log lines of the host
} fixture;

/* Names required by the linker's --wrap. NOLINTBEGIN(*-naming,*-reserved-identifier,cert-dcl*) */
strait_err __real_strait_metastore_put(struct strait_metastore *metastore, const char *key,
                                       const void *data, size_t bytes);
strait_err __wrap_strait_metastore_put(struct strait_metastore *metastore, const char *key,
                                       const void *data, size_t bytes);

/* Replaces the put of the host's metastore: fails as on a full disk. */
strait_err __wrap_strait_metastore_put(struct strait_metastore *metastore, const char *key,
                                       const void *data, size_t bytes) {
    if (strncmp(key, "member/", 7) == 0 && atomic_fetch_sub(&fixture.n_failing, 1) > 0)
        return STRAIT_FAIL(STRAIT_EIO, "the store: no space");
    return __real_strait_metastore_put(metastore, key, data, bytes);
}
/* NOLINTEND(*-naming,*-reserved-identifier,cert-dcl*) */

static int never_stops(void *user) {
    (void)user;
    return 0;
}

static void *run_worker(void *arg) {
    (void)arg;
    fixture.ended = strait_worker_run(&fixture.worker_spec);
    atomic_store(&fixture.has_ended, 1);
    return NULL;
}

static void on_invited(void *user, const char *line) {
    (void)user;
    CHECK_OK(strait_invite_parse(line, &fixture.worker_spec.invite));
    assert_int_equal(pthread_create(&fixture.worker, NULL, run_worker, NULL), 0);
    fixture.has_worker = 1;
}

static void on_noted(void *user, const char *text) {
    const size_t used = strlen(fixture.notes);
    (void)user;
    (void)snprintf(fixture.notes + used, sizeof fixture.notes - used, "%s\n", text);
}

static void on_saved(void *user, int64_t step) {
    (void)user;
    (void)step;
    fixture.n_saved++;
}

static int approves(void *user, const strait_fingerprint *key, const char *name) {
    (void)user;
    (void)key;
    (void)name;
    return ++fixture.n_asked >= fixture.approves_from;
}

/* Stops the host when the worker has ended; it would wait for a worker for ever. */
static int must_stop(void *user) {
    (void)user;
    return atomic_load(&fixture.has_ended);
}

/* Runs the host until it ends, with a worker that is started when the invite is printed. */
static strait_err run_host(void) {
    const strait_host_spec spec = {
        .run = &fixture.run,
        .folder = scratch_at(&fixture.folder, "run"),
        .identity = fixture.host_key,
        .listen = fixture.listen,
        .uses = 1, // a key that used a limited invite is stored before it joins
        .max_lost_work_s = 10.0,
        .lease_s = 600.0,
        .stall_s = 600.0,
        .store_wait_s = 60.0,
        .session = {.saved = on_saved, .must_stop = must_stop},
        .events = {.invited = on_invited,
                   .noted = on_noted,
                   .approves = fixture.approves_from > 0 ? approves : NULL}};
    fixture.has_worker = fixture.n_asked = fixture.n_saved = 0;
    fixture.notes[0] = '\0';
    atomic_store(&fixture.has_ended, 0);
    const strait_err err = strait_host(&spec);
    if (fixture.has_worker) (void)pthread_join(fixture.worker, NULL);
    return err;
}

static int set_up(void **state) {
    (void)state;
    memset(&fixture, 0, sizeof fixture);
    fixture.folder = scratch_open();
    tiny_run(&fixture.folder, &fixture.run);
    fixture.run.device.threads = 1;
    CHECK_OK(strait_identity_generate(&fixture.host_key));
    CHECK_OK(strait_identity_generate(&fixture.worker_key));
    (void)snprintf(fixture.listen, sizeof fixture.listen, "127.0.0.1:%d", port_choose());
    fixture.worker_spec = (strait_worker_spec){.identity = fixture.worker_key,
                                               .name = "worker",
                                               .listen = "127.0.0.1:0",
                                               .device = "cpu",
                                               .n_threads = 1,
                                               .give_up_ms = 60000,
                                               .events = {.must_stop = never_stops}};
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    strait_identity_close(&fixture.host_key);
    strait_identity_close(&fixture.worker_key);
    scratch_close(&fixture.folder);
    return 0;
}

static int count_notes(const char *text) {
    int n = 0;
    for (const char *at = fixture.notes; (at = strstr(at, text)) != NULL; at++)
        n++;
    return n;
}

/* ---- a metastore that fails for a moment ---- */

static void join_while_metastore_fails(int approves_from) {
    fixture.approves_from = approves_from;
    atomic_store(&fixture.n_failing, 2);
    CHECK_OK(run_host());
    assert_true(atomic_load(&fixture.n_failing) < 0); // the put was retried until it succeeded
    assert_int_equal(fixture.ended, STRAIT_OK);
    assert_int_equal(count_notes("worker 'worker' waits to be admitted: the store: no space"), 1);
    assert_int_equal(count_notes("is disconnected"), 0);
}

static void approved_worker_waits_for_metastore(void **state) {
    (void)state;
    join_while_metastore_fails(3); // the first two requests are not approved
}

static void worker_without_approval_waits_for_metastore(void **state) {
    (void)state;
    join_while_metastore_fails(0);
}

/* ---- secrets ---- */

static int contains(const char *data, size_t bytes, const void *part, size_t n) {
    for (size_t i = 0; i + n <= bytes; i++)
        if (memcmp(data + i, part, n) == 0) return 1;
    return 0;
}

/* Whoever reads the metastore, or a backup of it, must not be able to join. */
static void token_in_the_metastore_is_sealed(void **state) {
    (void)state;
    char *journal = NULL;
    size_t bytes = 0;
    struct strait_identity *other = NULL;
    CHECK_OK(run_host());
    const strait_invite first = fixture.worker_spec.invite;
    CHECK_OK(strait_file_read(scratch_at(&fixture.folder, "run/swarm.journal"), 1 << 24, &journal,
                              &bytes));
    assert_true(contains(journal, bytes, first.run, sizeof first.run)); // the entry is there
    assert_false(contains(journal, bytes, first.token, sizeof first.token));
    assert_false(contains(journal, bytes, first.token, 8));
    strait_alloc_free(journal);
    CHECK_OK(strait_identity_generate(&other));
    struct strait_identity *mine = fixture.host_key;
    fixture.host_key = other;
    CHECK_FAILS(run_host(), STRAIT_EAUTH, "sealed with another host key");
    fixture.host_key = mine;
    strait_identity_close(&other);
    fixture.run.train.steps += 4; // so that the host prints its invite again
    CHECK_OK(run_host());
    assert_memory_equal(fixture.worker_spec.invite.token, first.token, sizeof first.token);
}

/* ---- damaged checkpoints ---- */

static const char *checkpoint_file(int step, const char *name) {
    char inner[128];
    (void)snprintf(inner, sizeof inner, "run/checkpoints/%08d/%s", step, name);
    return scratch_at(&fixture.folder, inner);
}

static void read_file(const char *path, char **out, size_t *bytes) {
    CHECK_OK(strait_file_read(path, 1 << 24, out, bytes));
}

static void check_file_unchanged(const char *path, const char *prev, size_t bytes) {
    char *after = NULL;
    size_t n = 0;
    read_file(path, &after, &n);
    assert_int_equal(n, bytes);
    assert_memory_equal(after, prev, bytes);
    strait_alloc_free(after);
}

/* The metrics contain the same losses as before, each once. */
static void check_losses(const strait_metrics_point *prev, int n) {
    strait_metrics_point *after = NULL;
    int n_after = 0;
    CHECK_OK(
        strait_metrics_read(scratch_at(&fixture.folder, "run/metrics.jsonl"), &after, &n_after));
    assert_int_equal(n_after, n);
    for (int i = 0; i < n; i++) {
        assert_int_equal(after[i].step, prev[i].step);
        CHECK(after[i].loss == prev[i].loss);
    }
    strait_alloc_free(after);
}

static void truncate_by_one(const char *path) {
    char *data = NULL;
    size_t bytes = 0;
    read_file(path, &data, &bytes);
    CHECK_OK(strait_file_replace(path, data, bytes - 1));
    strait_alloc_free(data);
}

static void flip_bit(const char *path) {
    char *data = NULL;
    size_t bytes = 0;
    read_file(path, &data, &bytes);
    data[bytes / 2] ^= 1;
    CHECK_OK(strait_file_replace(path, data, bytes));
    strait_alloc_free(data);
}

static void remove_file(const char *path) {
    assert_int_equal(unlink(path), 0);
}

/* The steps after the newest undamaged checkpoint are recomputed, with the same bits. */
static void recomputes_steps_of_damaged_checkpoint(void **state) {
    (void)state;
    static void (*const damages[])(const char *path) = {truncate_by_one, flip_bit, remove_file};
    static const char *const names[] = {"stage-0.safetensors", "stage-0.state.safetensors",
                                        "stage-0.safetensors"};
    CHECK_OK(run_host());
    assert_int_equal(fixture.n_saved, 3);
    for (int i = 0; i < 3; i++) {
        char *whole = NULL;
        strait_metrics_point *losses = NULL;
        size_t n_whole = 0;
        int n = 0;
        read_file(checkpoint_file(12, names[i]), &whole, &n_whole);
        CHECK_OK(
            strait_metrics_read(scratch_at(&fixture.folder, "run/metrics.jsonl"), &losses, &n));
        damages[i](checkpoint_file(12, names[i]));
        CHECK_OK(run_host());
        assert_true(fixture.has_worker);
        assert_int_equal(fixture.ended, STRAIT_OK);
        assert_int_equal(fixture.n_saved, 1);
        assert_int_equal(count_notes("using step 8, the newest undamaged checkpoint"), 1);
        assert_int_equal(count_notes("checkpoints/00000012"), 1);
        assert_int_equal(count_notes(names[i]), 1);
        check_file_unchanged(checkpoint_file(12, names[i]), whole, n_whole);
        check_losses(losses, n);
        strait_alloc_free(whole);
        strait_alloc_free(losses);
        CHECK_OK(run_host()); // the run is complete: no worker is needed
        assert_false(fixture.has_worker);
        assert_string_equal(fixture.notes, "");
    }
}

static void changes_nothing_if_all_checkpoints_are_damaged(void **state) {
    (void)state;
    char *damaged = NULL;
    size_t bytes = 0;
    CHECK_OK(run_host());
    for (int step = 4; step <= 12; step += 4)
        flip_bit(checkpoint_file(step, "stage-0.safetensors"));
    read_file(checkpoint_file(12, "stage-0.safetensors"), &damaged, &bytes);
    CHECK_FAILS(run_host(), STRAIT_EDATA, "is damaged");
    assert_non_null(strstr(strait_err_detail(), "00000012: stage-0.safetensors"));
    assert_false(fixture.has_worker); // fails before it invites a worker
    check_file_unchanged(checkpoint_file(12, "stage-0.safetensors"), damaged, bytes);
    strait_alloc_free(damaged);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(approved_worker_waits_for_metastore, set_up, tear_down),
        cmocka_unit_test_setup_teardown(worker_without_approval_waits_for_metastore, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(token_in_the_metastore_is_sealed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(recomputes_steps_of_damaged_checkpoint, set_up, tear_down),
        cmocka_unit_test_setup_teardown(changes_nothing_if_all_checkpoints_are_damaged, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
