/* A host and a worker in one process: what befalls the files they rely on. */
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
    strait_worker_spec lend;
    pthread_t worker;
    int has_worker;       // in this start of the host
    atomic_int has_ended; // it has, with:
    strait_err ended;
    int approves_from, n_asked; // how often approval was asked for, and the first that is granted
    atomic_int n_failing;       // facts of members that the store will not take
    int n_saved;
    char notes[4096]; // all of them, a line each
} play;

/* Names that the linker makes. NOLINTBEGIN(*-naming,*-reserved-identifier,cert-dcl*) */
strait_err __real_strait_metastore_put(struct strait_metastore *metastore, const char *key,
                                       const void *data, size_t bytes);
strait_err __wrap_strait_metastore_put(struct strait_metastore *metastore, const char *key,
                                       const void *data, size_t bytes);

/* The store of the host: it fails as a full disk does. */
strait_err __wrap_strait_metastore_put(struct strait_metastore *metastore, const char *key,
                                       const void *data, size_t bytes) {
    if (strncmp(key, "member/", 7) == 0 && atomic_fetch_sub(&play.n_failing, 1) > 0)
        return STRAIT_FAIL(STRAIT_EIO, "the store: no space");
    return __real_strait_metastore_put(metastore, key, data, bytes);
}
/* NOLINTEND(*-naming,*-reserved-identifier,cert-dcl*) */

static int goes_on(void *user) {
    (void)user;
    return 0;
}

static void *work(void *arg) {
    (void)arg;
    play.ended = strait_worker_run(&play.lend);
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

static void on_saved(void *user, int64_t step) {
    (void)user;
    (void)step;
    play.n_saved++;
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
        .max_lost_work_s = 10.0,
        .lease_s = 600.0,
        .stall_s = 600.0,
        .store_wait_s = 60.0,
        .session = {.saved = on_saved, .must_stop = must_stop},
        .events = {.invited = on_invited,
                   .noted = on_noted,
                   .approves = play.approves_from > 0 ? approves : NULL}};
    play.has_worker = play.n_asked = play.n_saved = 0;
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
    CHECK_OK(strait_identity_generate(&play.host_key));
    CHECK_OK(strait_identity_generate(&play.worker_key));
    (void)snprintf(play.listen, sizeof play.listen, "127.0.0.1:%d", port_choose());
    play.lend = (strait_worker_spec){.identity = play.worker_key,
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
    assert_int_equal(count_notes("worker 'worker' waits to be admitted: the store: no space"), 1);
    assert_int_equal(count_notes("is disconnected"), 0);
}

static void who_was_approved_waits_for_the_store(void **state) {
    (void)state;
    join_while_the_store_fails(3); // not at once: it is asked for again
}

static void so_does_who_needs_no_approval(void **state) {
    (void)state;
    join_while_the_store_fails(0);
}

/* ---- checkpoints that were damaged ---- */

static const char *checkpoint_file(int step, const char *name) {
    char inner[128];
    (void)snprintf(inner, sizeof inner, "run/checkpoints/%08d/%s", step, name);
    return scratch_at(&play.folder, inner);
}

static void read_file(const char *path, char **out, size_t *bytes) {
    CHECK_OK(strait_file_read(path, 1 << 24, out, bytes));
}

static void is_as_before(const char *path, const char *prev, size_t bytes) {
    char *after = NULL;
    size_t n = 0;
    read_file(path, &after, &n);
    assert_int_equal(n, bytes);
    assert_memory_equal(after, prev, bytes);
    strait_alloc_free(after);
}

/* The losses in its log are those of before, each once. */
static void check_losses(const strait_metrics_point *prev, int n) {
    strait_metrics_point *after = NULL;
    int n_after = 0;
    CHECK_OK(strait_metrics_read(scratch_at(&play.folder, "run/metrics.jsonl"), &after, &n_after));
    assert_int_equal(n_after, n);
    for (int i = 0; i < n; i++) {
        assert_int_equal(after[i].step, prev[i].step);
        CHECK(after[i].loss == prev[i].loss);
    }
    strait_alloc_free(after);
}

static void cut_short(const char *path) {
    char *data = NULL;
    size_t bytes = 0;
    read_file(path, &data, &bytes);
    CHECK_OK(strait_file_replace(path, data, bytes - 1));
    strait_alloc_free(data);
}

static void flip_a_bit(const char *path) {
    char *data = NULL;
    size_t bytes = 0;
    read_file(path, &data, &bytes);
    data[bytes / 2] ^= 1;
    CHECK_OK(strait_file_replace(path, data, bytes));
    strait_alloc_free(data);
}

static void lose(const char *path) {
    assert_int_equal(unlink(path), 0);
}

/* The last steps are made again, to the same bits, from the newest checkpoint that is whole. */
static void an_end_that_was_damaged_is_made_again(void **state) {
    (void)state;
    static void (*const damages[])(const char *path) = {cut_short, flip_a_bit, lose};
    static const char *const names[] = {"stage-0.safetensors", "stage-0.state.safetensors",
                                        "stage-0.safetensors"};
    CHECK_OK(host());
    assert_int_equal(play.n_saved, 3);
    for (int i = 0; i < 3; i++) {
        char *whole = NULL;
        strait_metrics_point *losses = NULL;
        size_t n_whole = 0;
        int n = 0;
        read_file(checkpoint_file(12, names[i]), &whole, &n_whole);
        CHECK_OK(strait_metrics_read(scratch_at(&play.folder, "run/metrics.jsonl"), &losses, &n));
        damages[i](checkpoint_file(12, names[i]));
        CHECK_OK(host());
        assert_true(play.has_worker);
        assert_int_equal(play.ended, STRAIT_OK);
        assert_int_equal(play.n_saved, 1);
        assert_int_equal(count_notes("using step 8, the newest undamaged checkpoint"), 1);
        assert_int_equal(count_notes("checkpoints/00000012"), 1);
        assert_int_equal(count_notes(names[i]), 1);
        is_as_before(checkpoint_file(12, names[i]), whole, n_whole);
        check_losses(losses, n);
        strait_alloc_free(whole);
        strait_alloc_free(losses);
        CHECK_OK(host()); // and now it is over
        assert_false(play.has_worker);
        assert_string_equal(play.notes, "");
    }
}

static void without_a_whole_one_nothing_is_touched(void **state) {
    (void)state;
    char *damaged = NULL;
    size_t bytes = 0;
    CHECK_OK(host());
    for (int step = 4; step <= 12; step += 4)
        flip_a_bit(checkpoint_file(step, "stage-0.safetensors"));
    read_file(checkpoint_file(12, "stage-0.safetensors"), &damaged, &bytes);
    CHECK_FAILS(host(), STRAIT_EDATA, "is damaged");
    assert_non_null(strstr(strait_err_detail(), "00000012: stage-0.safetensors"));
    assert_false(play.has_worker); // nobody is asked for
    is_as_before(checkpoint_file(12, "stage-0.safetensors"), damaged, bytes);
    strait_alloc_free(damaged);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(who_was_approved_waits_for_the_store, set_up, tear_down),
        cmocka_unit_test_setup_teardown(so_does_who_needs_no_approval, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_end_that_was_damaged_is_made_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_a_whole_one_nothing_is_touched, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
