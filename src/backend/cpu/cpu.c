/* cpu.c - the host as a device: memory is malloc, streams run at once. */
#include "backend/backend.h"
const struct strait_backend_ops strait_backend_cpu = {.name = "cpu"};
