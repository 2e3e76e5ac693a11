/* run_async.c - runs a call that blocks on a disk or a remote metastore in a thread of its own, so
 * that links are served meanwhile. */
#include "swarm/host/state.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

/* Shared with the thread; all but is_done is read only after it ended. */
struct job {
    struct host *host;
    strait_err (*run)(void *arg);
    void *arg;
    strait_err err;
    char reason[512]; // errors are noted per thread, so the text is carried over
    atomic_int is_done;
};

static void *run_one(void *arg) {
    struct job *b = arg;
    b->err = b->run(b->arg);
    (void)snprintf(b->reason, sizeof b->reason, "%s", strait_err_detail());
    atomic_store(&b->is_done, 1);
    b->host->t->ops->wake(b->host->t);
    return NULL;
}

strait_err strait_host_run_async(struct host *h, strait_err (*run)(void *arg), void *arg,
                                 strait_err (*serve)(struct host *h)) {
    struct job b = {.host = h, .run = run, .arg = arg};
    strait_err err = STRAIT_OK;
    pthread_t thread;
    if (h->t == NULL || pthread_create(&thread, NULL, run_one, &b) != 0) return run(arg);
    while (err == STRAIT_OK && !atomic_load(&b.is_done))
        err = serve(h);
    (void)pthread_join(thread, NULL);
    if (err == STRAIT_OK && b.err != STRAIT_OK) err = STRAIT_FAIL(b.err, "%s", b.reason);
    return err;
}
