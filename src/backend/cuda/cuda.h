/* cuda.h - what the files of the cuda backend share.
 *
 * Each family's .c file exports one function that writes its entries into a table of kernels. */
#pragma once

#include "backend/cuda/driver.h"
#include "backend/cuda/info.h"
#include "backend/cuda/launch.h"
#include "backend/kernel_set.h"

#include <string.h>

enum {
    STRAIT_CUDA_MODULES = 24, // members of the file of kernels
    STRAIT_CUDA_KERNELS = 512 // a power of two, at least twice as many as there are kernels
};

/* A kernel that was launched before. */
struct strait_cuda_kernel {
    const char *name; // as the first caller spelt it; NULL in an empty place
    CUfunction function;
    unsigned shared; // the dynamic limit it has now
};

struct strait_cuda_blas; // matmul.c
struct strait_cudnn;     // cudnn.h

/* The state of a cuda device: one backend, used by one thread at a time. */
struct strait_cuda {
    const struct strait_cuda_driver *driver;
    CUdevice device;
    CUcontext context; // the device's primary one, shared with the libraries; NULL before
    CUmodule modules[STRAIT_CUDA_MODULES];
    int n_modules;
    struct strait_cuda_kernel found[STRAIT_CUDA_KERNELS];
    int n_found;
    int n_processors, major, minor;
    size_t taken, most_taken; // device memory, now and at most: bytes
    struct strait_cuda_blas *blas;
    struct strait_cudnn *cudnn; // NULL where attention does without
    struct strait_kernel_set kernels;
    char module[STRAIT_CUDA_PATH];
    char description[192];
};

/* A stream as the backend keeps it: strait_stream.native. */
struct strait_cuda_queue {
    CUstream stream;
    CUevent event; // for order()
    CUdeviceptr scratch;
    size_t scratch_bytes;
};

static inline struct strait_cuda *strait_cuda_of(const struct strait_backend *be) {
    return be->state;
}

static inline struct strait_cuda_queue *strait_cuda_queue_of(const struct strait_stream *s) {
    return s->native;
}

/* An address of the device as the pointer that tensors hold. */
static inline void *strait_cuda_pointer(CUdeviceptr address) {
    void *p;
    _Static_assert(sizeof p == sizeof address, "device addresses are pointers");
    memcpy(&p, &address, sizeof p);
    return p;
}

/* Makes the device's context current in this thread. */
strait_err strait_cuda_use(const struct strait_backend *be);

/* Device memory, not zeroed; counted. give_back accepts 0. The context is current. */
strait_err strait_cuda_take(const struct strait_backend *be, size_t bytes, CUdeviceptr *out);
void strait_cuda_give_back(const struct strait_backend *be, CUdeviceptr memory);

/* Loads the members of the file of kernels into the context; cuda->module names the file. */
strait_err strait_cuda_modules_load(struct strait_backend *be);
void strait_cuda_modules_unload(struct strait_cuda *cuda);

/* Finds cublasLt and makes its handle and the table of products seen so far. */
strait_err strait_cuda_blas_open(struct strait_backend *be);
void strait_cuda_blas_close(struct strait_cuda *cuda);
strait_err strait_cuda_blas_find(char path[STRAIT_CUDA_PATH]);

/* Chooses what computes attention, and starts cuDNN where it does. STRAIT_ECONFIG when
 * STRAIT_ATTENTION names no kind, STRAIT_ENOTSUP when it names cudnn, which cannot be used. */
strait_err strait_cuda_attention_open(struct strait_backend *be);
void strait_cuda_attention_close(struct strait_cuda *cuda);

/* What computes attention for heads of 64 and 128, forward and backward: "plain", "tiled" (tensor
 * cores), "group" (those of sm_90), "cudnn+group" or "cudnn+tiled". */
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
void strait_cuda_attention(struct strait_kernel_set *set);
void strait_cuda_payload(struct strait_kernel_set *set);
void strait_cuda_codec(struct strait_kernel_set *set);
void strait_cuda_conv(struct strait_kernel_set *set);
void strait_cuda_columns(struct strait_kernel_set *set);
void strait_cuda_log_scale(struct strait_kernel_set *set);
void strait_cuda_autoencoder(struct strait_kernel_set *set);
