/* driver.c - libcuda.so.1, opened on first use. */
#include "backend/cuda/driver.h"

#include "backend/cuda/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* The result of the first call: written once under `once`, then read by all threads. Errors are
 * kept as text, because the error detail belongs to the thread that failed. */
static struct {
    pthread_once_t once;
    struct strait_cuda_driver table;
    strait_err err;
    char detail[STRAIT_CUDA_PATH];
} found = {.once = PTHREAD_ONCE_INIT};

static const char *const names[] = {
#define X(name) #name,
    STRAIT_CUDA_DRIVER(X)
#undef X
};
_Static_assert(sizeof names == offsetof(struct strait_cuda_driver, cuFuncGetParamInfo),
               "one pointer per name");

static strait_err start(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return STRAIT_FAIL(STRAIT_ENOTSUP, "device cuda: no NVIDIA driver on this machine "
                                           "(libcuda.so.1 not found): set device.kind to cpu");
    const strait_err err = strait_cuda_library_table(library, names, sizeof names / sizeof names[0],
                                                     &found.table);
    if (err != STRAIT_OK) {
        strait_err_prefix("device cuda: this NVIDIA driver is too old, update it");
        return err;
    }
    /* A pointer to a function is not one to an object in C: its bytes are copied. */
    void *info = dlsym(library, "cuFuncGetParamInfo");
    memcpy(&found.table.cuFuncGetParamInfo, &info, sizeof info);
    const CUresult result = found.table.cuInit(0);
    if (result == CUDA_SUCCESS) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ENOTSUP,
                       "device cuda: the NVIDIA driver does not start (%s): check it with "
                       "nvidia-smi, or set device.kind to cpu",
                       strait_cuda_result_text(result));
}

/* Runs once per process: the driver cannot be unloaded and opened again. */
static void find(void) {
    found.err = start();
    if (found.err != STRAIT_OK)
        (void)snprintf(found.detail, sizeof found.detail, "%s", strait_err_detail());
}

/* Later callers get the error of the first call again, in their own thread. */
strait_err strait_cuda_driver(const struct strait_cuda_driver **out) {
    (void)pthread_once(&found.once, find);
    if (found.err != STRAIT_OK) return STRAIT_FAIL(found.err, "%s", found.detail);
    *out = &found.table;
    return STRAIT_OK;
}

/* Called also when the driver could not be loaded. */
const char *strait_cuda_result_text(CUresult result) {
    const char *text = NULL;
    if (found.table.cuGetErrorString != NULL) found.table.cuGetErrorString(result, &text);
    return text != NULL ? text : "unknown error";
}
