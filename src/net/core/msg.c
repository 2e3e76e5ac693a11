/* msg.c - the pool of messages. */
#include "net/core/msg.h"

#include "base/alloc.h"

#include <pthread.h>

enum {
    SMALLEST_BITS = 8, // capacities are powers of two from 256 bytes
    N_SIZES = 32,
    RETURN_BYTES = 1 << 20 // freed at once, from which on the system gets its memory back
};

/* Closed messages wait in `spare`, one list per power of two, for the next message of their size: a
 * training run needs the same sizes in every step. The mutex guards all of it. */
struct strait_msg_pool {
    pthread_mutex_t mutex;
    struct strait_msg *spare[N_SIZES];
    int64_t n_spare[N_SIZES];
    int64_t n_unused[N_SIZES]; // smallest n_spare since the pool was last trimmed
    int64_t n_out;             // open messages
    int is_closed;
};

static int size_class(size_t size) {
    int i = 0;
    while (i < N_SIZES && ((size_t)1 << (i + SMALLEST_BITS)) < size)
        i++;
    return i;
}

size_t strait_msg_bytes(size_t size) {
    return sizeof(struct strait_msg) + ((size_t)1 << (size_class(size) + SMALLEST_BITS));
}

strait_err strait_msg_pool_open(struct strait_msg_pool **out) {
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(struct strait_msg_pool), "message pool", &memory));
    struct strait_msg_pool *pool = memory;
    pthread_mutex_init(&pool->mutex, NULL);
    *out = pool;
    return STRAIT_OK;
}

static void destroy(struct strait_msg_pool *pool) {
    for (int i = 0; i < N_SIZES; i++) {
        while (pool->spare[i] != NULL) {
            struct strait_msg *msg = pool->spare[i];
            pool->spare[i] = msg->next;
            strait_alloc_free(msg);
        }
    }
    pthread_mutex_destroy(&pool->mutex);
    strait_alloc_free(pool);
}

void strait_msg_pool_close(struct strait_msg_pool **pool) {
    if (*pool == NULL) return;
    pthread_mutex_lock(&(*pool)->mutex);
    (*pool)->is_closed = 1;
    const int is_last = (*pool)->n_out == 0;
    pthread_mutex_unlock(&(*pool)->mutex);
    if (is_last) destroy(*pool);
    *pool = NULL;
}

strait_err strait_msg_open(struct strait_msg_pool *pool, uint8_t type, size_t size,
                           struct strait_msg **out) {
    const int which = size_class(size);
    if (which >= N_SIZES)
        return STRAIT_FAIL(STRAIT_EINVAL, "cannot open a message of %zu bytes: too large", size);
    pthread_mutex_lock(&pool->mutex);
    struct strait_msg *msg = pool->spare[which];
    if (msg != NULL) {
        pool->spare[which] = msg->next;
        pool->n_spare[which]--;
        if (pool->n_spare[which] < pool->n_unused[which])
            pool->n_unused[which] = pool->n_spare[which];
    }
    pool->n_out++; // before the allocation, so that a close meanwhile does not free the pool
    pthread_mutex_unlock(&pool->mutex);

    const size_t capacity = (size_t)1 << (which + SMALLEST_BITS);
    if (msg == NULL) {
        void *memory = NULL;
        const strait_err err = strait_alloc(1, sizeof *msg + capacity, "message", &memory);
        if (err != STRAIT_OK) {
            pthread_mutex_lock(&pool->mutex);
            pool->n_out--;
            pthread_mutex_unlock(&pool->mutex);
            return err;
        }
        msg = memory;
    }
    *msg = (struct strait_msg){.pool = pool, .type = type, .size = size, .capacity = capacity};
    *out = msg;
    return STRAIT_OK;
}

void strait_msg_close(struct strait_msg **msg) {
    struct strait_msg *m = *msg;
    if (m == NULL) return;
    *msg = NULL;
    struct strait_msg_pool *pool = m->pool;
    const int which = size_class(m->capacity);
    pthread_mutex_lock(&pool->mutex);
    m->next = pool->spare[which];
    pool->spare[which] = m;
    pool->n_spare[which]++;
    /* Messages may outlive their pool's owner; the last one frees the pool. */
    const int is_last = --pool->n_out == 0 && pool->is_closed;
    pthread_mutex_unlock(&pool->mutex);
    if (is_last) destroy(pool);
}

/* Takes the messages to free off their lists, so that they are freed without the mutex. */
static struct strait_msg *take_unused(struct strait_msg_pool *pool) {
    struct strait_msg *all = NULL;
    for (int i = 0; i < N_SIZES; i++) {
        for (; pool->n_unused[i] > 0; pool->n_unused[i]--) {
            struct strait_msg *msg = pool->spare[i];
            pool->spare[i] = msg->next;
            pool->n_spare[i]--;
            msg->next = all;
            all = msg;
        }
        pool->n_unused[i] = pool->n_spare[i];
    }
    return all;
}

void strait_msg_pool_trim(struct strait_msg_pool *pool) {
    size_t bytes = 0;
    pthread_mutex_lock(&pool->mutex);
    struct strait_msg *all = take_unused(pool);
    pthread_mutex_unlock(&pool->mutex);
    while (all != NULL) {
        struct strait_msg *msg = all;
        all = msg->next;
        bytes += strait_msg_bytes(msg->capacity);
        strait_alloc_free(msg);
    }
    if (bytes >= RETURN_BYTES) strait_alloc_trim();
}

strait_err strait_msg_pool_reserve(struct strait_msg_pool *pool, size_t size, int n) {
    /* All are open at the same time, so that none is reused for the next. */
    struct strait_msg *all = NULL, *msg = NULL;
    strait_err err = STRAIT_OK;
    for (int i = 0; i < n && err == STRAIT_OK; i++) {
        err = strait_msg_open(pool, STRAIT_MSG_FIRST, size, &msg);
        if (err != STRAIT_OK) break;
        msg->next = all;
        all = msg;
    }
    while (all != NULL) {
        msg = all;
        all = msg->next;
        strait_msg_close(&msg);
    }
    return err;
}
