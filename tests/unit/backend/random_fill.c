/* Random fills by many threads, copied in pieces, equal those of one thread. */
#include "backend/random_fill.h"

#include "check.h"

enum {
    LARGE = 3 * (1 << 22) + 12345, // more than two pieces
    PENDING_MAX = 4
};

/* A fake device with separate memory: uploads happen when an event is waited for, not before. */
static struct {
    void *to;
    const void *from;
    size_t bytes;
} pending[PENDING_MAX];
static int n_pending, n_pinned;
static const struct strait_backend_ops *host;

static strait_err upload_later(struct strait_stream *s, void *device, const void *from,
                               size_t bytes) {
    (void)s;
    CHECK(n_pending < PENDING_MAX);
    pending[n_pending].to = device;
    pending[n_pending].from = from;
    pending[n_pending++].bytes = bytes;
    return STRAIT_OK;
}

static strait_err query_now(struct strait_event *e, int waits, int *is_reached) {
    (void)e;
    CHECK(waits);
    for (int i = 0; i < n_pending; i++)
        memcpy(pending[i].to, pending[i].from, pending[i].bytes);
    n_pending = 0;
    *is_reached = 1;
    return STRAIT_OK;
}

static strait_err pin(struct strait_backend *be, size_t bytes, void **out) {
    STRAIT_TRY(host->alloc_host(be, bytes, out));
    n_pinned++;
    return STRAIT_OK;
}

static void unpin(struct strait_backend *be, void *memory) {
    assert_int_equal(n_pending, 0); // no copy from this memory is pending
    n_pinned--;
    host->release_host(be, memory);
}

static struct strait_backend *open_host(int n_threads) {
    struct strait_backend *be = NULL;
    CHECK_OK(
        strait_backend_open((strait_backend_spec){.name = "cpu", .n_threads = n_threads}, &be));
    host = be->ops;
    return be;
}

static struct strait_backend *open_fake_device(int n_threads, struct strait_backend_ops *ops) {
    struct strait_backend *be = open_host(n_threads);
    *ops = *host;
    ops->is_host = 0;
    ops->upload = upload_later;
    ops->event_query = query_now;
    ops->alloc_host = pin;
    ops->release_host = unpin;
    be->ops = ops;
    return be;
}

static void close_fake_device(struct strait_backend **be) {
    (*be)->ops = host;
    strait_backend_close(be);
}

static float *make(int64_t n) {
    float *values = NULL;
    CHECK_OK(strait_alloc((size_t)n, sizeof *values, "values", (void **)&values));
    return values;
}

static const strait_random_fill_params plain = {.rng = {3, 4}, .deviation = 0.02};

static void check_plain(const float *values, int64_t n) {
    float *want = make(n);
    strait_rng_normals(plain.rng, 0, want, (size_t)n);
    for (int64_t i = 0; i < n; i++)
        want[i] = (float)((double)want[i] * plain.deviation);
    assert_memory_equal(values, want, (size_t)n * sizeof *want);
    strait_alloc_free(want);
}

static void thread_count_changes_no_bit(void **state) {
    (void)state;
    float *values = make(LARGE);
    for (int n_threads = 1; n_threads < 6; n_threads += 2) {
        struct strait_backend *be = open_host(n_threads);
        struct strait_stream s = {.backend = be};
        memset(values, 0, LARGE * sizeof *values);
        CHECK_OK(strait_random_fill_once(&s, (strait_tensor){values, STRAIT_F32, 1, LARGE}, plain));
        check_plain(values, LARGE);
        strait_backend_close(&be);
    }
    strait_alloc_free(values);
}

static void copies_every_piece(void **state) {
    (void)state;
    struct strait_backend_ops ops;
    struct strait_backend *be = open_fake_device(3, &ops);
    struct strait_stream s = {.backend = be};
    struct strait_random_fill *draw = NULL;
    float *large = make(LARGE), *small = make(7);
    CHECK_OK(strait_random_fill_open(&s, LARGE, &draw));
    CHECK_OK(strait_random_fill_normals(draw, (strait_tensor){large, STRAIT_F32, 1, LARGE}, plain));
    CHECK_OK(strait_random_fill_normals(draw, (strait_tensor){small, STRAIT_F32, 7, 1}, plain));
    strait_random_fill_close(&draw);
    assert_null(draw);
    assert_int_equal(n_pinned, 0);
    check_plain(large, LARGE);
    check_plain(small, 7);
    strait_alloc_free(large);
    strait_alloc_free(small);
    close_fake_device(&be);
}

static void leaves_padding_columns_zero(void **state) {
    (void)state;
    struct strait_backend *be = open_host(2);
    struct strait_stream s = {.backend = be};
    enum {
        ROWS = 9001,
        COLS = 7,
        KEPT = 5,
        N = ROWS * COLS
    };
    float *all = make(N), *kept = make(N);
    strait_random_fill_params how = plain;
    how.cols = COLS;
    CHECK_OK(strait_random_fill_once(&s, (strait_tensor){all, STRAIT_F32, ROWS, COLS}, how));
    check_plain(all, N);
    how.cols = KEPT;
    CHECK_OK(strait_random_fill_once(&s, (strait_tensor){kept, STRAIT_F32, ROWS, COLS}, how));
    for (int64_t i = 0; i < N; i++)
        CHECK(kept[i] == (i % COLS < KEPT ? all[i] : 0.0f));
    strait_alloc_free(all);
    strait_alloc_free(kept);
    strait_backend_close(&be);
}

static void failures_leak_nothing(void **state) {
    (void)state;
    struct strait_backend_ops ops;
    struct strait_backend *be = open_fake_device(2, &ops);
    struct strait_stream s = {.backend = be};
    float value = 0;
    const strait_tensor one = {&value, STRAIT_F32, 1, 1};
    const int64_t live = strait_alloc_live();
    for (int n = 1; n <= 4; n++) { // allocations: the object, its threads, two pieces
        strait_alloc_fail_at(n);
        assert_int_equal(strait_random_fill_once(&s, one, plain), STRAIT_ENOMEM);
        assert_int_equal(strait_alloc_live(), live);
        assert_int_equal(n_pinned, 0);
    }
    strait_alloc_fail_at(0);
    CHECK_OK(strait_random_fill_once(&s, one, plain));
    check_plain(&value, 1);
    close_fake_device(&be);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thread_count_changes_no_bit),
        cmocka_unit_test(copies_every_piece),
        cmocka_unit_test(leaves_padding_columns_zero),
        cmocka_unit_test(failures_leak_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
