#include "base/pool.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

enum {
    THREADS_MAX = 256,
    SPIN_NS =
        20000, // kernels follow each other closely, so spinning briefly is cheaper than sleeping
    SPIN_LOOK = 64 // iterations between readings of the clock
};

struct strait_pool {
    int n_threads, n_started;
    pthread_t threads[THREADS_MAX];

    pthread_mutex_t mutex;
    pthread_cond_t has_work, is_idle;
    int is_closing; // guarded by mutex

    /* One job: written by run() before `generation` moves, read by workers after they see it. */
    strait_pool_task task;
    void *arg;
    int n_tasks;
    atomic_int next_task;
    atomic_int n_busy; // workers that have not finished this generation
    _Atomic uint32_t generation;
};

/* Tasks are claimed one at a time, so that a slow thread does not hold up the rest. Which thread
 * runs a task never affects its result. */
static void take_tasks(struct strait_pool *pool) {
    int task;
    while ((task = atomic_fetch_add(&pool->next_task, 1)) < pool->n_tasks)
        pool->task(pool->arg, task);
}

/* The clock is read rarely, because reading it costs as much as many iterations. */
static int spun_until_changed(struct strait_pool *pool, uint32_t seen) {
    const int64_t until = strait_clock_ns() + SPIN_NS;
    do {
        for (int i = 0; i < SPIN_LOOK; i++)
            if (atomic_load(&pool->generation) != seen) return 1;
    } while (strait_clock_ns() < until);
    return 0;
}

static void *work(void *arg) {
    struct strait_pool *pool = arg;
    uint32_t seen = 0;
    for (;;) {
        if (!spun_until_changed(pool, seen)) {
            (void)pthread_mutex_lock(&pool->mutex);
            while (atomic_load(&pool->generation) == seen && !pool->is_closing)
                (void)pthread_cond_wait(&pool->has_work, &pool->mutex);
            const int is_closing = pool->is_closing;
            (void)pthread_mutex_unlock(&pool->mutex);
            if (is_closing) return NULL;
        }
        /* run() waits for all workers before it starts another job, so no generation is skipped. */
        seen = atomic_load(&pool->generation);
        take_tasks(pool);
        if (atomic_fetch_sub(&pool->n_busy, 1) == 1) {
            (void)pthread_mutex_lock(&pool->mutex);
            (void)pthread_cond_signal(&pool->is_idle);
            (void)pthread_mutex_unlock(&pool->mutex);
        }
    }
}

/* The number of cores that are online, not of those that exist. */
static int cores_available(void) {
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > THREADS_MAX ? THREADS_MAX : (int)n;
}

/* The calling thread works, too, so one thread less is started. */
strait_err strait_pool_open(int n_threads, struct strait_pool **out) {
    if (n_threads < 0 || n_threads > THREADS_MAX)
        return STRAIT_FAIL(STRAIT_EINVAL, "%d threads: expected 0 to %d", n_threads, THREADS_MAX);
    struct strait_pool *pool = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof *pool, "thread pool", (void **)&pool));
    (void)pthread_mutex_init(&pool->mutex, NULL);
    (void)pthread_cond_init(&pool->has_work, NULL);
    (void)pthread_cond_init(&pool->is_idle, NULL);
    pool->n_threads = n_threads > 0 ? n_threads : cores_available();
    for (; pool->n_started < pool->n_threads - 1; pool->n_started++) {
        if (pthread_create(&pool->threads[pool->n_started], NULL, work, pool) == 0) continue;
        strait_pool_close(&pool);
        return STRAIT_FAIL(STRAIT_ENOMEM, "cannot start a thread");
    }
    *out = pool;
    return STRAIT_OK;
}

/* The flag is set under the lock, so that a thread about to sleep cannot miss it. */
void strait_pool_close(struct strait_pool **pool) {
    struct strait_pool *p = *pool;
    if (p == NULL) return;
    (void)pthread_mutex_lock(&p->mutex);
    p->is_closing = 1;
    (void)pthread_cond_broadcast(&p->has_work);
    (void)pthread_mutex_unlock(&p->mutex);
    for (int i = 0; i < p->n_started; i++)
        (void)pthread_join(p->threads[i], NULL);
    (void)pthread_cond_destroy(&p->is_idle);
    (void)pthread_cond_destroy(&p->has_work);
    (void)pthread_mutex_destroy(&p->mutex);
    strait_alloc_free(p);
    *pool = NULL;
}

int strait_pool_threads(const struct strait_pool *pool) {
    return pool->n_threads;
}

/* The last tasks usually end within microseconds of each other. */
static void wait_idle(struct strait_pool *pool) {
    const int64_t until = strait_clock_ns() + SPIN_NS;
    do {
        for (int i = 0; i < SPIN_LOOK; i++)
            if (atomic_load(&pool->n_busy) == 0) return;
    } while (strait_clock_ns() < until);
    (void)pthread_mutex_lock(&pool->mutex);
    while (atomic_load(&pool->n_busy) != 0)
        (void)pthread_cond_wait(&pool->is_idle, &pool->mutex);
    (void)pthread_mutex_unlock(&pool->mutex);
}

void strait_pool_run(struct strait_pool *pool, int n_tasks, strait_pool_task task, void *arg) {
    if (pool->n_started == 0 || n_tasks <= 1) {
        for (int i = 0; i < n_tasks; i++)
            task(arg, i);
        return;
    }
    pool->task = task;
    pool->arg = arg;
    pool->n_tasks = n_tasks;
    atomic_store(&pool->next_task, 0);
    atomic_store(&pool->n_busy, pool->n_started);
    (void)pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->generation, 1);
    (void)pthread_cond_broadcast(&pool->has_work);
    (void)pthread_mutex_unlock(&pool->mutex);
    take_tasks(pool);
    wait_idle(pool);
}
