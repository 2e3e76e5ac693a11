/* args.h - the arguments of a kernel launch: where each is, and how large.
 *
 * The driver takes addresses alone and reads as many bytes as the kernel declares, so a call that
 * lacks an argument or passes a type of another size would compute nonsense. Every launch
 * therefore carries the sizes, which are compared with the kernel's (module.c). */
#pragma once

#include "base/error.h"

#include <cuda.h>
#include <stddef.h>

enum {
    STRAIT_CUDA_MOST_ARGS = 10
};

typedef struct strait_cuda_args {
    void **at;           // the address of each argument, as cuLaunchKernel wants them
    const size_t *sizes; // in bytes
    int n;
} strait_cuda_args;

/* STRAIT_CUDA_ARGS(y.data, n): the arguments of a kernel in order, variables that live until the
 * launch returns. The arrays belong to the enclosing block. */
#define STRAIT_CUDA_ARGS(...)                                    \
    ((strait_cuda_args){                                         \
        (void *[]){STRAIT_CUDA_EACH(&, __VA_ARGS__)},            \
        (const size_t[]){STRAIT_CUDA_EACH(sizeof, __VA_ARGS__)}, \
        (int)(sizeof(void *[]){STRAIT_CUDA_EACH(&, __VA_ARGS__)} / sizeof(void *))})

/* Applies an operator to each of up to ten arguments. */
#define STRAIT_CUDA_EACH(op, ...) \
    STRAIT_CUDA_PICK(__VA_ARGS__, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)(op, __VA_ARGS__)
#define STRAIT_CUDA_PICK(a, b, c, d, e, f, g, h, i, j, n, ...) STRAIT_CUDA_EACH_##n
#define STRAIT_CUDA_EACH_1(op, x)                              op(x)
#define STRAIT_CUDA_EACH_2(op, x, ...)                         op(x), STRAIT_CUDA_EACH_1(op, __VA_ARGS__)
#define STRAIT_CUDA_EACH_3(op, x, ...)                         op(x), STRAIT_CUDA_EACH_2(op, __VA_ARGS__)
#define STRAIT_CUDA_EACH_4(op, x, ...)                         op(x), STRAIT_CUDA_EACH_3(op, __VA_ARGS__)
#define STRAIT_CUDA_EACH_5(op, x, ...)                         op(x), STRAIT_CUDA_EACH_4(op, __VA_ARGS__)
#define STRAIT_CUDA_EACH_6(op, x, ...)                         op(x), STRAIT_CUDA_EACH_5(op, __VA_ARGS__)
#define STRAIT_CUDA_EACH_7(op, x, ...)                         op(x), STRAIT_CUDA_EACH_6(op, __VA_ARGS__)
#define STRAIT_CUDA_EACH_8(op, x, ...)                         op(x), STRAIT_CUDA_EACH_7(op, __VA_ARGS__)
#define STRAIT_CUDA_EACH_9(op, x, ...)                         op(x), STRAIT_CUDA_EACH_8(op, __VA_ARGS__)
#define STRAIT_CUDA_EACH_10(op, x, ...)                        op(x), STRAIT_CUDA_EACH_9(op, __VA_ARGS__)

/* The sizes of a kernel's parameters. */
typedef struct strait_cuda_params {
    size_t sizes[STRAIT_CUDA_MOST_ARGS];
    int n;
} strait_cuda_params;

/* cuFuncGetParamInfo, which drivers have since CUDA 12.4. */
typedef CUresult (*strait_cuda_param_info)(CUfunction function, size_t index, size_t *offset,
                                           size_t *size);

/* Reads the parameters of a kernel. Where the driver cannot tell (`info` is NULL) they are those of
 * `first`, the first launch, so that later ones must at least agree with it. STRAIT_ENOTSUP, naming
 * the kernel, when it has more than STRAIT_CUDA_MOST_ARGS. */
strait_err strait_cuda_params_read(strait_cuda_param_info info, CUfunction function,
                                   const char *kernel, strait_cuda_args first,
                                   strait_cuda_params *out);

/* STRAIT_EINVAL, naming the kernel and the argument, unless number and sizes agree. */
strait_err strait_cuda_args_check(const char *kernel, strait_cuda_args args,
                                  const strait_cuda_params *params);
