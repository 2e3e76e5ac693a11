/* run_async.c - runs a call that blocks on a disk or a remote metastore in a thread of its own, so
 * that links are served meanwhile. */
#include "swarm/host/state.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

/* Shared with the thread. All but is_done is read only after the thread has been joined. */
struct job {
    struct host *host;
    strait_err (*run)(void *arg);
    void *arg;
    strait_err err;
    char reason[512]; // error details are per thread, so the text is copied
    atomic_int is_done;
};

static void *run_one(void *arg) {
    struct job *job = arg;
    job->err = job->run(job->arg);
    (void)snprintf(job->reason, sizeof job->reason, "%s", strait_err_detail());
    atomic_store(&job->is_done, 1);
    job->host->t->ops->wake(job->host->t);
    return NULL;
}

strait_err strait_host_run_async(struct host *h, strait_err (*run)(void *arg), void *arg,
                                 strait_err (*serve)(struct host *h)) {
    struct job job = {.host = h, .run = run, .arg = arg};
    strait_err err = STRAIT_OK;
    pthread_t thread;
    if (h->t == NULL || pthread_create(&thread, NULL, run_one, &job) != 0) return run(arg);
    while (err == STRAIT_OK && !atomic_load(&job.is_done))
        err = serve(h);
    (void)pthread_join(thread, NULL); // also after an error of serve: the thread uses our memory
    if (err == STRAIT_OK && job.err != STRAIT_OK) err = STRAIT_FAIL(job.err, "%s", job.reason);
    return err;
}
