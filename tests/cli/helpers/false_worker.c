/* false_worker.c - the program itself, with a worker that computes something else than it should,
 * in a way that no bound on what it reports can find. FALSE_WORKER in its environment says what:
 *
 *   weights:STEP   as an owner it changes one weight by a thousandth after the update of STEP
 *   squares:STEP   it reports one square of STEP a thousandth too large
 *   tensor:STEP    it changes all of a tensor by a twentieth after the update of STEP
 *   wire:STEP      it states the right digests of what it sends in STEP, and sends something else
 *   received:STEP  it states other digests of what it received in STEP
 *   idle           as an auditor it computes nothing, and says that it has
 *
 * As a further replica of a stage, in the Nth step that it computes as one:
 *
 *   crossing:N     it sends other activations and gradients to the neighbours
 *   sum:N          it gives other gradients to the sum of all replicas
 *   state:N        it changes one weight after the update
 *   statement:N    it states another digest of the sum than the others
 *
 * With FALSE_REPLICA it audits nobody, and so is sooner a replica than others.
 * With FALSE_DEVICE it says that it has a device that rounds differently from others.
 * What it did is reported on standard error. */
#include "stage/replicas/reduction_state.h"
#include "swarm/worker/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names required by the linker's --wrap. NOLINTBEGIN(*-naming,*-reserved-identifier,cert-dcl*) */
strait_err __real_strait_runner_update(struct strait_runner *runner, int64_t step, float factor);
strait_err __wrap_strait_runner_update(struct strait_runner *runner, int64_t step, float factor);
strait_err __real_strait_worker_send_reply(struct worker *w, strait_stage_reply *reply);
strait_err __wrap_strait_worker_send_reply(struct worker *w, strait_stage_reply *reply);
strait_err __real_strait_capability_measure(const char *device, int ordinal, int n_threads,
                                            strait_swarm_report *out);
strait_err __wrap_strait_capability_measure(const char *device, int ordinal, int n_threads,
                                            strait_swarm_report *out);
strait_err __real_strait_worker_audit(struct worker *w, const strait_task *task);
strait_err __wrap_strait_worker_audit(struct worker *w, const strait_task *task);

strait_err __real_strait_runner_gradients(struct strait_runner *runner, int64_t step,
                                          double *loss_sum);
strait_err __wrap_strait_runner_gradients(struct strait_runner *runner, int64_t step,
                                          double *loss_sum);
strait_err __real_strait_boundary_send(struct strait_boundary *boundary, const strait_crossing *at,
                                       strait_tensor x);
strait_err __wrap_strait_boundary_send(struct strait_boundary *boundary, const strait_crossing *at,
                                       strait_tensor x);
strait_err __real_strait_crossing_hash_add(struct strait_crossing_hash *hash,
                                           strait_crossing_way way, const strait_groups *groups,
                                           const struct strait_msg *msg);
strait_err __wrap_strait_crossing_hash_add(struct strait_crossing_hash *hash,
                                           strait_crossing_way way, const strait_groups *groups,
                                           const struct strait_msg *msg);
strait_err __real_strait_reduction_complete(struct strait_reduction *r,
                                            struct strait_stream *stream);
strait_err __wrap_strait_reduction_complete(struct strait_reduction *r,
                                            struct strait_stream *stream);
strait_err __real_strait_work_pack(struct strait_msg_pool *pool, const strait_work_message *work,
                                   struct strait_msg **out);
strait_err __wrap_strait_work_pack(struct strait_msg_pool *pool, const strait_work_message *work,
                                   struct strait_msg **out);

static int64_t n_shared; // steps that it has begun as a further replica; 0: it is none now

/* Returns whether FALSE_WORKER is `what`, and its step is this one; -1: it has none. */
static int is_false(const char *what, int64_t step) {
    const char *wanted = getenv("FALSE_WORKER"); // NOLINT(concurrency-mt-unsafe): never changed
    const size_t n = strlen(what);
    if (wanted == NULL || strncmp(wanted, what, n) != 0) return 0;
    if (step >= 0 && strtoll(wanted + n, NULL, 10) != step) return 0;
    fprintf(stderr, "false worker: %s%lld\n", what, (long long)step);
    return 1;
}

/* The same of the steps that it computes as a further replica. */
static int is_false_replica(const char *what) {
    return n_shared > 0 && is_false(what, n_shared);
}

strait_err __wrap_strait_runner_gradients(struct strait_runner *runner, int64_t step,
                                          double *loss_sum) {
    static int64_t n;
    const int is_shared = runner->replica > 0 && runner->reduction != NULL;
    n += is_shared;
    n_shared = is_shared ? n : 0;
    return __real_strait_runner_gradients(runner, step, loss_sum);
}

strait_err __wrap_strait_boundary_send(struct strait_boundary *boundary, const strait_crossing *at,
                                       strait_tensor x) {
    if (!at->is_evaluation && is_false_replica("crossing:")) ((float *)x.data)[0] += 0.01f;
    return __real_strait_boundary_send(boundary, at, x);
}

/* What is sent was kept for audits before, and is hashed here for the last time. */
strait_err __wrap_strait_crossing_hash_add(struct strait_crossing_hash *hash,
                                           strait_crossing_way way, const strait_groups *groups,
                                           const struct strait_msg *msg) {
    STRAIT_TRY(__real_strait_crossing_hash_add(hash, way, groups, msg));
    if (!hash->is_on) return STRAIT_OK;
    if (way == STRAIT_CROSSING_SENT && is_false("wire:", msg->step))
        ((unsigned char *)(uintptr_t)msg->body)[0] ^= 1; // NOLINT(performance-no-int-to-ptr)
    if (way == STRAIT_CROSSING_RECEIVED && is_false("received:", msg->step))
        hash->groups[way][groups != NULL ? strait_groups_of(groups, msg->microbatch) : 0]
            .bytes[0] ^= 1;
    return STRAIT_OK;
}

/* Its last sum is in the gradients. */
strait_err __wrap_strait_reduction_complete(struct strait_reduction *r,
                                            struct strait_stream *stream) {
    if (is_false_replica("sum:"))
        ((float *)r->spec.params[r->spec.n_params / 2].grad.data)[0] += 0.001f;
    return __real_strait_reduction_complete(r, stream);
}

strait_err __wrap_strait_work_pack(struct strait_msg_pool *pool, const strait_work_message *work,
                                   struct strait_msg **out) {
    STRAIT_TRY(__real_strait_work_pack(pool, work, out));
    const size_t report =
        STRAIT_DIGEST_BYTES; // the last digest, which the coordinator does not read
    if (is_false_replica("statement:")) (*out)->body[(*out)->size - report - 1] ^= 1;
    return STRAIT_OK;
}

strait_err __wrap_strait_runner_update(struct strait_runner *runner, int64_t step, float factor) {
    const strait_err err = __real_strait_runner_update(runner, step, factor);
    if (err == STRAIT_OK && (is_false("weights:", step) || is_false_replica("state:"))) {
        float *weights = runner->params[runner->n_params / 2].value.data;
        weights[0] = weights[0] * 1.001f + 1e-6f;
    }
    if (err == STRAIT_OK && is_false("tensor:", step)) {
        const strait_tensor *value = &runner->params[runner->n_params / 2].value;
        for (int64_t i = 0; i < value->rows * value->cols; i++)
            ((float *)value->data)[i] *= 1.05f;
    }
    return err;
}

/* The step of a reply is the one that the worker is at. */
strait_err __wrap_strait_worker_send_reply(struct worker *w, strait_stage_reply *reply) {
    if (reply->kind == STRAIT_COMMAND_GRADIENTS && reply->err == STRAIT_OK &&
        is_false("squares:", w->step)) {
        float *squares = strait_service_runner(w->service)->squares;
        squares[0] *= 1.001f;
    }
    return __real_strait_worker_send_reply(w, reply);
}

strait_err __wrap_strait_capability_measure(const char *device, int ordinal, int n_threads,
                                            strait_swarm_report *out) {
    STRAIT_TRY(__real_strait_capability_measure(device, ordinal, n_threads, out));
    if (getenv("FALSE_DEVICE") != NULL) // NOLINT(concurrency-mt-unsafe): never changed
        (void)snprintf(out->device, sizeof out->device, "a GPU");
    return STRAIT_OK;
}

strait_err __wrap_strait_worker_audit(struct worker *w, const strait_task *task) {
    strait_task_reply reply = {
        .kind = task->kind, .generation = task->generation, .sequence = task->sequence};
    /* One that lies as a replica has no time for audits. */
    if (task->kind == STRAIT_TASK_AUDIT &&
        getenv("FALSE_REPLICA") != NULL) { // NOLINT(concurrency-mt-unsafe)
        reply.err = STRAIT_ENOMEM;
        return strait_worker_send_task_reply(w, &reply);
    }
    if (task->kind != STRAIT_TASK_AUDIT_STEP || !is_false("idle", -1))
        return __real_strait_worker_audit(w, task);
    w->step = task->audit_step.step + 1;
    STRAIT_TRY(strait_runner_reset(strait_service_runner(w->service), w->step)); // for the next one
    return strait_worker_send_task_reply(w, &reply);
}
/* NOLINTEND(*-naming,*-reserved-identifier,cert-dcl*) */
