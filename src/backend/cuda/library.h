/* library.h - finds shared libraries and files that may be absent on this machine. */
#pragma once

#include "backend/cuda/info.h"
#include "base/error.h"

/* Opens the shared library `name` ("libcublasLt.so.13") and keeps it open for the life of the
 * process. Looks where the system's loader does (LD_LIBRARY_PATH, ld.so.conf), then in the folders
 * of STRAIT_CUDA_LIBS (separated by colons), next to the program, and in /usr/local/cuda/lib64.
 * `path` receives the file that was opened. STRAIT_ENOTSUP names the library and those places. Any
 * thread. */
strait_err strait_cuda_library_open(const char *name, char path[STRAIT_CUDA_PATH], void **out);

/* Fills a struct of exactly n function pointers with the functions of these names, in order.
 * STRAIT_ENOTSUP names the first that is missing. */
strait_err strait_cuda_library_table(void *library, const char *const *names, size_t n,
                                     void *table);

/* The module file of compiled kernels: $STRAIT_CUDA_MODULE, or strait.cuda next to the program or
 * the library, or in
 * ../lib/strait, ../bin or ../../bin from there. STRAIT_ENOTSUP names the places. */
strait_err strait_cuda_module_path(char path[STRAIT_CUDA_PATH]);

/* The file that STRAIT_CUDA_TUNE names, for algorithms chosen by timing (tune.h); "" if unset. */
const char *strait_cuda_tune_path(void);
