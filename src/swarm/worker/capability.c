#include "swarm/worker/capability.h"

#include "backend/backend.h"
#include "backend/slab.h"
#include "base/clock.h"
#include "base/machine.h"

#include <stdio.h>

enum {
    SIZE = 384, // of the matrices: large enough for all cores, small enough for a slow one
    ROUNDS = 4
};

/* Times products of square matrices. The best of a few rounds counts: the first ones also load
 * kernels and fill caches, and another process may disturb any of them. The values do not matter.
 */
static strait_err time_products(struct strait_backend *backend, struct strait_slab *slab,
                                struct strait_stream *stream, double *flops) {
    const strait_matmul_params params = {.alpha = 1.0f};
    strait_tensor y;
    strait_tensor a;
    strait_tensor b;
    STRAIT_TRY(strait_slab_add(slab, STRAIT_F32, SIZE, SIZE, &y));
    STRAIT_TRY(strait_slab_add(slab, STRAIT_F32, SIZE, SIZE, &a));
    STRAIT_TRY(strait_slab_add(slab, STRAIT_F32, SIZE, SIZE, &b));
    STRAIT_TRY(strait_slab_commit(slab, backend));
    double best = 1e9;
    for (int i = 0; i < ROUNDS; i++) {
        const double began = strait_clock_seconds();
        STRAIT_TRY(backend->kernels->matmul(stream, y, a, b, params));
        STRAIT_TRY(backend->ops->wait(stream));
        const double took = strait_clock_seconds() - began;
        if (took < best) best = took;
    }
    *flops = 2.0 * SIZE * SIZE * SIZE / best;
    return STRAIT_OK;
}

strait_err strait_capability_measure(const char *device, int ordinal, int n_threads,
                                     strait_swarm_report *out) {
    struct strait_backend *backend = NULL;
    struct strait_slab slab = {0};
    struct strait_stream stream;
    STRAIT_TRY(strait_backend_open(
        (strait_backend_spec){.name = device, .ordinal = ordinal, .n_threads = n_threads},
        &backend));
    (void)snprintf(out->device, sizeof out->device, "%s", backend->ops->describe(backend));
    strait_err err = backend->ops->stream_open(backend, &stream);
    if (err == STRAIT_OK) {
        err = time_products(backend, &slab, &stream, &out->flops);
        backend->ops->stream_close(&stream);
    }
    strait_slab_fini(&slab);
    strait_backend_close(&backend);
    /* Host memory even for a GPU: snapshots and copies are kept there. */
    out->memory_bytes = strait_machine_spare_bytes();
    return err;
}
