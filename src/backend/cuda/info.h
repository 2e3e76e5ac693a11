/* info.h - what this machine offers the cuda backend, for people who ask before they train.
 *
 * Compiled into every build: one without CUDA support says so in `problem`. */
#pragma once

#include "base/error.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    STRAIT_CUDA_DEVICES = 16, // as many as are described
    STRAIT_CUDA_PATH = 256
};

typedef struct strait_cuda_device_info {
    char name[96];
    size_t memory, free; // bytes
    int major, minor;    // compute capability
} strait_cuda_device_info;

struct strait_cuda_info {
    int has_driver;
    int driver_version; // 13000 is CUDA 13.0: the newest the driver can run
    int n_devices;      // described below
    strait_cuda_device_info devices[STRAIT_CUDA_DEVICES];
    char cublas[STRAIT_CUDA_PATH], cudnn[STRAIT_CUDA_PATH]; // where the library was found; or empty
    char module[STRAIT_CUDA_PATH];                          // the file of kernels; or empty
    char problem[STRAIT_CUDA_PATH]; // the first thing that keeps a device from being used; or empty
};

/* Looks for driver, devices, libraries and module, and makes a context on each device for as long
 * as it takes to ask for free memory. What is absent is no error: fields stay empty and `problem`
 * says what to do. Any thread. */
strait_err strait_cuda_get_info(struct strait_cuda_info *out);

#ifdef __cplusplus
}
#endif
