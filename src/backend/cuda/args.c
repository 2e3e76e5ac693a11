#include "backend/cuda/args.h"

strait_err strait_cuda_params_read(strait_cuda_param_info info, CUfunction function,
                                   const char *kernel, strait_cuda_args first,
                                   strait_cuda_params *out) {
    *out = (strait_cuda_params){0};
    for (int i = 0; info == NULL && i < first.n; i++)
        out->sizes[out->n++] = first.sizes[i];
    if (info == NULL) return STRAIT_OK;
    size_t offset = 0;
    size_t size = 0;
    /* The driver refuses the index past the last parameter. */
    while (info(function, (size_t)out->n, &offset, &size) == CUDA_SUCCESS) {
        if (out->n == STRAIT_CUDA_MOST_ARGS)
            return STRAIT_FAIL(STRAIT_ENOTSUP, "kernel %s has more than %d parameters", kernel,
                               STRAIT_CUDA_MOST_ARGS);
        out->sizes[out->n++] = size;
    }
    return STRAIT_OK;
}

strait_err strait_cuda_args_check(const char *kernel, strait_cuda_args args,
                                  const strait_cuda_params *params) {
    if (args.n != params->n)
        return STRAIT_FAIL(STRAIT_EINVAL, "kernel %s is launched with %d arguments, but has %d",
                           kernel, args.n, params->n);
    for (int i = 0; i < args.n; i++)
        if (args.sizes[i] != params->sizes[i])
            return STRAIT_FAIL(STRAIT_EINVAL,
                               "kernel %s: argument %d has %zu bytes, but the kernel's has %zu",
                               kernel, i, args.sizes[i], params->sizes[i]);
    return STRAIT_OK;
}
