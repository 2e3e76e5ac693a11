/* driver.h - the NVIDIA driver, found at run time.
 *
 * Nothing of CUDA is linked: cuda.h gives types, libcuda.so.1 gives functions. The table is filled
 * once in the life of a process and never closed. */
#pragma once

#include "backend/cuda/args.h"
#include "base/error.h"

#include <cuda.h>

/* Every driver function we use, by the name the library exports. */
#define STRAIT_CUDA_DRIVER(X)       \
    X(cuInit)                       \
    X(cuDriverGetVersion)           \
    X(cuGetErrorString)             \
    X(cuDeviceGetCount)             \
    X(cuDeviceGet)                  \
    X(cuDeviceGetName)              \
    X(cuDeviceGetAttribute)         \
    X(cuDeviceTotalMem_v2)          \
    X(cuDevicePrimaryCtxRetain)     \
    X(cuDevicePrimaryCtxRelease_v2) \
    X(cuCtxSetCurrent)              \
    X(cuMemGetInfo_v2)              \
    X(cuMemAlloc_v2)                \
    X(cuMemFree_v2)                 \
    X(cuMemGetAddressRange_v2)      \
    X(cuMemHostAlloc)               \
    X(cuMemFreeHost)                \
    X(cuMemcpyHtoDAsync_v2)         \
    X(cuMemcpyDtoHAsync_v2)         \
    X(cuMemcpyDtoDAsync_v2)         \
    X(cuMemsetD8Async)              \
    X(cuMemsetD16Async)             \
    X(cuMemsetD32Async)             \
    X(cuModuleLoadData)             \
    X(cuModuleUnload)               \
    X(cuModuleGetFunction)          \
    X(cuFuncSetAttribute)           \
    X(cuLaunchKernel)               \
    X(cuStreamCreate)               \
    X(cuStreamDestroy_v2)           \
    X(cuStreamSynchronize)          \
    X(cuStreamWaitEvent)            \
    X(cuEventCreate)                \
    X(cuEventDestroy_v2)            \
    X(cuEventRecord)                \
    X(cuEventQuery)                 \
    X(cuEventSynchronize)

struct strait_cuda_driver {
#define X(name) __typeof__(name) *(name);
    STRAIT_CUDA_DRIVER(X)
#undef X
    strait_cuda_param_info cuFuncGetParamInfo; // NULL in drivers before CUDA 12.4
};

/* Loads and starts the driver on the first call. STRAIT_ENOTSUP, with a text for users, when this
 * machine has no driver or it does not start. Any thread; the table is valid for ever. */
strait_err strait_cuda_driver(const struct strait_cuda_driver **out);

/* The driver's text for a result: "out of memory". Valid for ever. */
const char *strait_cuda_result_text(CUresult result);
