/* library.h - shared libraries and files that may or may not lie on this machine. */
#pragma once

#include "backend/cuda/info.h"
#include "base/error.h"

/* Opens the shared library `name` ("libcublasLt.so.13") and keeps it for the life of the process.
 * Looks where the system's loader does (LD_LIBRARY_PATH, ld.so.conf), then in the folders of
 * STRAIT_CUDA_LIBS (separated by colons), beside the program, in /usr/local/cuda/lib64. `path` gets
 * the file that was taken. STRAIT_ENOTSUP names the library and those places. Any thread. */
strait_err strait_cuda_library_open(const char *name, char path[STRAIT_CUDA_PATH], void **out);

/* Fills a table of n function pointers, and of nothing else, with the functions of these names. */
strait_err strait_cuda_library_table(void *library, const char *const *names, size_t n,
                                     void *table);

/* The file of kernels: $STRAIT_CUDA_MODULE, or strait.cuda beside the program or the library, or in
 * ../lib/strait, ../bin or ../../bin from there. STRAIT_ENOTSUP names the places. */
strait_err strait_cuda_module_path(char path[STRAIT_CUDA_PATH]);

/* The file that STRAIT_CUDA_TUNE names, for a record of timed products; empty when it names none.
 */
const char *strait_cuda_tune_path(void);
