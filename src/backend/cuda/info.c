/* info.c - collects what this machine has of driver, devices, libraries and module file. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/library.h"

#include <stdio.h>

/* Keeps the text of the first error. */
static void note(struct strait_cuda_info *out, strait_err err) {
    if (err == STRAIT_OK || out->problem[0] != '\0') return;
    (void)snprintf(out->problem, sizeof out->problem, "%s", strait_err_detail());
}

/* Free memory can be queried only inside a context. */
static size_t free_memory(const struct strait_cuda_driver *driver, CUdevice device) {
    CUcontext context = NULL;
    size_t free_bytes = 0, all = 0;
    if (driver->cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS) return 0;
    if (driver->cuCtxSetCurrent(context) == CUDA_SUCCESS)
        (void)driver->cuMemGetInfo_v2(&free_bytes, &all);
    (void)driver->cuCtxSetCurrent(NULL);
    (void)driver->cuDevicePrimaryCtxRelease_v2(device);
    return free_bytes;
}

/* A field that cannot be read stays zero; the others are still worth showing. */
static void describe_device(const struct strait_cuda_driver *driver, int ordinal,
                            strait_cuda_device_info *out) {
    CUdevice device = 0;
    if (driver->cuDeviceGet(&device, ordinal) != CUDA_SUCCESS) return;
    (void)driver->cuDeviceGetName(out->name, (int)sizeof out->name, device);
    (void)driver->cuDeviceTotalMem_v2(&out->memory, device);
    (void)driver->cuDeviceGetAttribute(&out->major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                       device);
    (void)driver->cuDeviceGetAttribute(&out->minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                                       device);
    out->free = free_memory(driver, device);
}

/* Called by strait doctor, which must work on machines without any GPU. */
static strait_err describe_devices(struct strait_cuda_info *out) {
    const struct strait_cuda_driver *driver = NULL;
    STRAIT_TRY(strait_cuda_driver(&driver));
    out->has_driver = 1;
    (void)driver->cuDriverGetVersion(&out->driver_version);
    if (driver->cuDeviceGetCount(&out->n_devices) != CUDA_SUCCESS) out->n_devices = 0;
    if (out->n_devices == 0)
        return STRAIT_FAIL(STRAIT_ENOTSUP,
                           "device cuda: the NVIDIA driver reports no device: check "
                           "nvidia-smi and CUDA_VISIBLE_DEVICES");
    if (out->n_devices > STRAIT_CUDA_DEVICES) out->n_devices = STRAIT_CUDA_DEVICES;
    for (int i = 0; i < out->n_devices; i++)
        describe_device(driver, i, &out->devices[i]);
    return STRAIT_OK;
}

strait_err strait_cuda_get_info(struct strait_cuda_info *out) {
    *out = (struct strait_cuda_info){0};
    note(out, describe_devices(out));
    note(out, strait_cuda_blas_find(out->cublas));
    if (strait_cuda_module_path(out->module) != STRAIT_OK) {
        out->module[0] = '\0';
        note(out, STRAIT_ENOTSUP);
    }
    void *library = NULL; // optional: without it attention uses our own kernels
    if (strait_cuda_library_open("libcudnn.so.9", out->cudnn, &library) != STRAIT_OK)
        out->cudnn[0] = '\0';
    return STRAIT_OK;
}
