/* A pool runs every task once, whatever the number of threads, again and again. */
#include "base/pool.h"

#include "base/alloc.h"
#include "check.h"

#include <stdatomic.h>
#include <time.h>

enum {
    TASKS = 1000
};

static void doze_ms(long ms) {
    const struct timespec span = {.tv_nsec = ms * 1000000};
    (void)nanosleep(&span, NULL);
}

struct work {
    int calls[TASKS]; // each touched by one task only
    atomic_int n_calls;
};

static void count(void *arg, int task) {
    struct work *work = arg;
    work->calls[task]++;
    atomic_fetch_add(&work->n_calls, 1);
}

static void every_task_runs_once(void **state) {
    (void)state;
    for (int n_threads = 1; n_threads <= 5; n_threads++) {
        struct strait_pool *pool = NULL;
        CHECK_OK(strait_pool_open(n_threads, &pool));
        assert_int_equal(strait_pool_threads(pool), n_threads);
        struct work work = {0};
        strait_pool_run(pool, TASKS, count, &work);
        assert_int_equal(work.n_calls, TASKS);
        for (int i = 0; i < TASKS; i++)
            assert_int_equal(work.calls[i], 1);
        strait_pool_close(&pool);
        assert_null(pool);
    }
}

/* What one run writes the next may read: run returns only when all is done. */
static void copy_left(void *arg, int task) {
    int *values = arg;
    values[task] = values[task + 64] + 1;
}

static void copy_right(void *arg, int task) {
    int *values = arg;
    values[task + 64] = values[63 - task];
}

static void runs_jobs_one_after_another(void **state) {
    (void)state;
    struct strait_pool *pool = NULL;
    CHECK_OK(strait_pool_open(3, &pool));
    int values[128] = {0};
    for (int i = 0; i < 3000; i++) {
        strait_pool_run(pool, 64, copy_left, values);
        strait_pool_run(pool, 64, copy_right, values);
        if (i % 1000 == 0) doze_ms(2); // long enough for the threads to fall asleep
    }
    for (int i = 0; i < 64; i++)
        assert_int_equal(values[i], 3000);
    strait_pool_close(&pool);
}

static void runs_few_or_no_tasks(void **state) {
    (void)state;
    struct strait_pool *pool = NULL;
    CHECK_OK(strait_pool_open(4, &pool));
    struct work work = {0};
    strait_pool_run(pool, 0, count, &work);
    assert_int_equal(work.n_calls, 0);
    strait_pool_run(pool, 1, count, &work);
    assert_int_equal(work.n_calls, 1);
    strait_pool_run(pool, 2, count, &work);
    assert_int_equal(work.n_calls, 3);
    strait_pool_close(&pool);
}

static void closes_sleeping_and_unused_pools(void **state) {
    (void)state;
    struct strait_pool *pool = NULL;
    strait_pool_close(&pool);
    for (long ms = 0; ms <= 3; ms += 3) {
        CHECK_OK(strait_pool_open(3, &pool));
        doze_ms(ms);
        strait_pool_close(&pool);
        assert_null(pool);
    }
}

static void running_allocates_nothing(void **state) {
    (void)state;
    struct strait_pool *pool = NULL;
    CHECK_OK(strait_pool_open(2, &pool));
    struct work work = {0};
    const int64_t before = strait_alloc_count();
    strait_pool_run(pool, TASKS, count, &work);
    assert_int_equal(strait_alloc_count(), before);
    strait_pool_close(&pool);
}

static void zero_threads_means_one_per_core(void **state) {
    (void)state;
    struct strait_pool *pool = NULL;
    CHECK_OK(strait_pool_open(0, &pool));
    CHECK(strait_pool_threads(pool) >= 1);
    strait_pool_close(&pool);
}

static void rejects_thread_counts_out_of_range(void **state) {
    (void)state;
    struct strait_pool *pool = NULL;
    CHECK_FAILS(strait_pool_open(-1, &pool), STRAIT_EINVAL, "-1 threads");
    CHECK_FAILS(strait_pool_open(100000, &pool), STRAIT_EINVAL, "100000 threads");
    strait_alloc_fail_at(1);
    CHECK_FAILS(strait_pool_open(2, &pool), STRAIT_ENOMEM, "thread pool");
    assert_null(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_runs_once),
        cmocka_unit_test(runs_jobs_one_after_another),
        cmocka_unit_test(runs_few_or_no_tasks),
        cmocka_unit_test(closes_sleeping_and_unused_pools),
        cmocka_unit_test(running_allocates_nothing),
        cmocka_unit_test(zero_threads_means_one_per_core),
        cmocka_unit_test(rejects_thread_counts_out_of_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
