/* registry.c - the list of backends. */
#include "backend/backend.h"

extern const struct strait_backend_ops strait_backend_cpu, strait_backend_cuda;

const struct strait_backend_ops *const strait_backends[] = {
    &strait_backend_cpu,
    &strait_backend_cuda,
    NULL,
};
