/* info.h - what this machine offers the cuda backend: driver, devices, libraries. For `strait
 * doctor`, before anyone trains.
 *
 * Compiled into every build: one without CUDA support says so in `problem`. */
#pragma once

#include "base/error.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    STRAIT_CUDA_DEVICES = 16, // most devices that are described
    STRAIT_CUDA_PATH = 256,
    STRAIT_CUDA_FP8_MAJOR = 9 // compute capability from which fp8 products are offered
};

typedef struct strait_cuda_device_info {
    char name[96];
    size_t memory, free; // bytes
    int major, minor;    // compute capability
} strait_cuda_device_info;

struct strait_cuda_info {
    int has_driver;
    int driver_version; // 13000 is CUDA 13.0: the newest the driver can run
    int n_devices;
    strait_cuda_device_info devices[STRAIT_CUDA_DEVICES];
    char cublas[STRAIT_CUDA_PATH], cudnn[STRAIT_CUDA_PATH]; // path of the library, or ""
    char module[STRAIT_CUDA_PATH];                          // path of the module file, or ""
    char problem[STRAIT_CUDA_PATH]; // the first thing that prevents the use of a device, or ""
};

/* Looks for driver, devices, libraries and module file, and creates a context on each device for as
 * long as it takes to query free memory. Absent parts are not errors: their fields stay empty and
 * `problem` says what to do. Any thread. */
strait_err strait_cuda_get_info(struct strait_cuda_info *out);

/* Calls `add` for every file and folder that the environment or the program's own place names for
 * CUDA: folders of libraries, the module file, and the file of tuned algorithms, which is also
 * written (may_write). They need not exist. For a process that confines itself. Any thread. */
void strait_cuda_paths(void *user, void (*add)(void *user, const char *path, int may_write));

#ifdef __cplusplus
}
#endif
