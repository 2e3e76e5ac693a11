/* cuda.h - declarations that the files of the cuda backend share.
 *
 * Each family's .c file exports one function that writes its entries into a set of kernels. */
#pragma once

#include "backend/cuda/driver.h"
#include "backend/cuda/info.h"
#include "backend/cuda/launch.h"
#include "backend/kernel_set.h"

#include <string.h>

enum {
    STRAIT_CUDA_MODULES = 32, // most members of the module file: one per .cu file
    STRAIT_CUDA_KERNELS = 512 // hash table size: a power of two, at least twice the kernels
};

/* A slot of the hash table of kernels that were launched before. */
struct strait_cuda_kernel {
    const char *name; // the first caller's string, which must be static; NULL in an empty slot
    CUfunction function;
    unsigned shared; // its present limit of dynamic shared memory, in bytes
    strait_cuda_params params;
};

struct strait_cuda_blas; // blas.h
struct strait_cudnn;     // cudnn.h

/* The state of a cuda device. Kernels are launched by one thread at a time. */
struct strait_cuda {
    const struct strait_cuda_driver *driver;
    CUdevice device;
    CUcontext context; // the device's primary one, shared with libraries; NULL before init
    CUmodule modules[STRAIT_CUDA_MODULES];
    int n_modules;
    struct strait_cuda_kernel found[STRAIT_CUDA_KERNELS];
    int n_found;
    int n_processors, major, minor;
    size_t used_bytes, peak_bytes; // device memory, now and at most
    struct strait_cuda_blas *blas;
    struct strait_cudnn *cudnn; // NULL where attention does not use it
    struct strait_kernel_set kernels;
    char module[STRAIT_CUDA_PATH]; // path of the module file
    char description[192];
};

/* What strait_stream.native points to. */
struct strait_cuda_queue {
    CUstream stream;
    CUevent event;       // for order()
    CUdeviceptr scratch; // strait_cuda_scratch
    size_t scratch_bytes;
};

static inline struct strait_cuda *strait_cuda_of(const struct strait_backend *be) {
    return be->state;
}

static inline struct strait_cuda_queue *strait_cuda_queue_of(const struct strait_stream *s) {
    return s->native;
}

/* A device address as the pointer that tensors hold. */
static inline void *strait_cuda_pointer(CUdeviceptr address) {
    void *p;
    _Static_assert(sizeof p == sizeof address, "device addresses are pointers");
    memcpy(&p, &address, sizeof p);
    return p;
}

/* Makes the device's context current in this thread. */
strait_err strait_cuda_use(const struct strait_backend *be);

/* Device memory, not zeroed, counted in peak_bytes. free accepts 0. The context must be current. */
strait_err strait_cuda_alloc(const struct strait_backend *be, size_t bytes, CUdeviceptr *out);
void strait_cuda_free(const struct strait_backend *be, CUdeviceptr memory);

/* Loads all members of the module file (compiled kernels) into the context and sets cuda->module.
 */
strait_err strait_cuda_modules_load(struct strait_backend *be);
void strait_cuda_modules_unload(struct strait_cuda *cuda);

/* Opens cublasLt, creates its handle and an empty table of planned products. find only looks for
 * the library and reports its path. */
strait_err strait_cuda_blas_open(struct strait_backend *be);
void strait_cuda_blas_close(struct strait_cuda *cuda);
strait_err strait_cuda_blas_find(char path[STRAIT_CUDA_PATH]);

/* Chooses which kernels compute attention, and starts cuDNN if it does. STRAIT_ECONFIG when the
 * environment variable STRAIT_ATTENTION is not a kind, STRAIT_ENOTSUP when it asks for cudnn and
 * that cannot be used. */
strait_err strait_cuda_attention_open(struct strait_backend *be);
void strait_cuda_attention_close(struct strait_cuda *cuda);

/* Which kernels compute attention for heads of 64 and 128, forward and backward: "plain", "tiled"
 * (tensor cores), "group" (warp groups of sm_90), "cudnn+group" or "cudnn+tiled". */
const char *strait_cuda_attention_kind(const struct strait_backend *be);

/* Fills every entry of every table, optional ones included. */
void strait_cuda_table(struct strait_kernel_set *set);

void strait_cuda_elementwise(struct strait_kernel_set *set);
void strait_cuda_sums(struct strait_kernel_set *set);
void strait_cuda_matmul(struct strait_kernel_set *set);
void strait_cuda_optim(struct strait_kernel_set *set);
void strait_cuda_norm(struct strait_kernel_set *set);
void strait_cuda_rotate(struct strait_kernel_set *set);
void strait_cuda_mlp(struct strait_kernel_set *set);
void strait_cuda_embed(struct strait_kernel_set *set);
void strait_cuda_loss(struct strait_kernel_set *set);
void strait_cuda_sample(struct strait_kernel_set *set);
void strait_cuda_attention(struct strait_kernel_set *set);
void strait_cuda_payload(struct strait_kernel_set *set);
void strait_cuda_codec(struct strait_kernel_set *set);
void strait_cuda_conv(struct strait_kernel_set *set);
void strait_cuda_columns(struct strait_kernel_set *set);
void strait_cuda_log_scale(struct strait_kernel_set *set);
void strait_cuda_autoencoder(struct strait_kernel_set *set);
void strait_cuda_norm_conv(struct strait_kernel_set *set);
void strait_cuda_conv_rotate(struct strait_kernel_set *set);
void strait_cuda_groups(struct strait_kernel_set *set);
void strait_cuda_fp8(struct strait_kernel_set *set); // only where the device has fp8 products
