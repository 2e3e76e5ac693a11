/* launch.h - launching kernels: used by the host side of every family.
 *
 * A family is a file k_NAME.cu of device code, compiled alone into one member of the module file,
 * and a file NAME.c that fills entries of struct strait_kernel_set. Kernels are extern "C" and are
 * found by name: "add_f32", "add_bf16". All calls come from the thread that drives the backend. */
#pragma once

#include "backend/backend.h"
#include "backend/cuda/args.h"

#include <assert.h>
#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

/* The launch grid of a kernel. Zeros in y and z count as 1. */
typedef struct strait_cuda_grid {
    int64_t x, y, z;    // blocks; y and z at most 65535
    unsigned threads;   // per block, in x
    unsigned threads_y; // 0 counts as 1
    unsigned shared;    // bytes of dynamic shared memory; above 32 KiB the limit is raised
} strait_cuda_grid;

/* Queues `kernel`, a static string, on the stream. A grid without blocks does nothing.
 * STRAIT_EINVAL when the arguments are not those of the kernel (args.h); STRAIT_EDEVICE when the
 * driver rejects the launch; STRAIT_ENOTSUP, naming kernel and file, when the module file lacks it.
 */
strait_err strait_cuda_launch(struct strait_stream *s, const char *kernel, strait_cuda_grid grid,
                              strait_cuda_args args);

/* The name of a kernel's variant for f32 or bf16. */
#define STRAIT_CUDA_OF(dtype, base) ((dtype) == STRAIT_BF16 ? base "_bf16" : base "_f32")

/* Device memory for the partial results of one call, aligned to 256 bytes, not zeroed. Each stream
 * has its own. It belongs to the caller until the next kernel entry is called on this stream, whose
 * work is queued after. It starts at STRAIT_CUDA_SCRATCH bytes and grows when a shape first needs
 * more, so a step that ran before allocates nothing. STRAIT_ENOMEM names the size. */
strait_err strait_cuda_scratch(struct strait_stream *s, size_t bytes, void **out);

enum {
    STRAIT_CUDA_SCRATCH = 32 << 20
};

/* STRAIT_OK, or STRAIT_EDEVICE with "device cuda:0: WHAT: the driver's text"; out of memory is
 * STRAIT_ENOMEM. */
strait_err strait_cuda_check(const struct strait_backend *be, CUresult result, const char *what);

/* The driver's handle of the stream, for libraries that queue work themselves. Makes the device's
 * context current in this thread. */
strait_err strait_cuda_enter(const struct strait_stream *s, CUstream *out);

int strait_cuda_processors(const struct strait_stream *s); // multiprocessors of the device

static inline int64_t strait_cuda_count(strait_tensor t) {
    return t.rows * t.cols;
}

/* How many pieces of `size` cover n. */
static inline int64_t strait_cuda_pieces(int64_t n, int64_t size) {
    return (n + size - 1) / size;
}

static inline int strait_cuda_same_shape(strait_tensor a, strait_tensor b) {
    return a.rows == b.rows && a.cols == b.cols;
}
