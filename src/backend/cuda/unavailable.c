/* unavailable.c - the cuda backend of a build without CUDA: opening it fails with a reason. */
#include "backend/backend.h"
#include "backend/cuda/info.h"

#include <stdio.h>

static const char reason[] = "device cuda: this build has no CUDA support: use a build with "
                             "STRAIT_CUDA, or set device.kind to cpu";

/* The error says how to get CUDA, since the name of the device was valid. */
static strait_err init(struct strait_backend *be) {
    (void)be;
    return STRAIT_FAIL(STRAIT_ENOTSUP, "%s", reason);
}

static strait_dtype precision(int ordinal, const char **why) {
    (void)ordinal;
    *why = NULL;
    return STRAIT_BF16; // the build that computes decides; this one only plans
}

static int count(void) {
    return 0;
}

/* init never succeeds, so there is nothing to undo. */
static void fini(struct strait_backend *be) {
    (void)be;
}

extern const struct strait_backend_ops strait_backend_cuda;

const struct strait_backend_ops strait_backend_cuda = {
    .name = "cuda",
    .state_size = 1,
    .precision = precision,
    .count = count,
    .init = init,
    .fini = fini,
};

strait_err strait_cuda_get_info(struct strait_cuda_info *out) {
    *out = (struct strait_cuda_info){0};
    (void)snprintf(out->problem, sizeof out->problem, "%s", reason);
    return STRAIT_OK;
}

void strait_cuda_paths(void *user, void (*add)(void *user, const char *path, int may_write)) {
    (void)user;
    (void)add;
}
