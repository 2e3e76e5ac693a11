/* module.c - the module file of compiled kernels, and how a kernel is found in it and launched.
 *
 * The file is an ar archive, so that any ar tool can list it: each .cu file is compiled alone into
 * one member, a fatbin. The first member is a digest of the sources (the stamp): launches are
 * checked by the sizes of arguments alone, so program and kernels must come from one build. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/library.h"
#include "base/alloc.h"
#include "base/file.h"
#include "stamp.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAGIC_BYTES = 8,   // "!<arch>\n"
    HEADER_BYTES = 60, // name 16, date 12, owner 6, group 6, mode 8, size 10, end 2
    SIZE_AT = 48,
    SIZE_DIGITS = 10,
    /* Dynamic shared memory of a block without raising its limit: 48 KiB, but less what the kernel
     * declares itself. */
    SHARED_ALWAYS = 32 << 10
};

/* A member of the archive: a view into the mapped file. */
typedef struct member {
    const unsigned char *data;
    size_t bytes;
} member;

static strait_err broken(const struct strait_cuda *cuda) {
    return STRAIT_FAIL(STRAIT_EDATA,
                       "device cuda: kernel file %s is damaged or truncated: copy it again from "
                       "the build of this program",
                       cuda->module);
}

static strait_err load(struct strait_backend *be, member from) {
    struct strait_cuda *cuda = strait_cuda_of(be);
    if (cuda->n_modules == STRAIT_CUDA_MODULES) return broken(cuda);
    void *image = NULL; // aligned and followed by a zero, as the driver expects
    STRAIT_TRY(strait_alloc(from.bytes + 1, 1, "kernels", &image));
    memcpy(image, from.data, from.bytes);
    const CUresult result = cuda->driver->cuModuleLoadData(&cuda->modules[cuda->n_modules], image);
    strait_alloc_free(image);
    if (result == CUDA_SUCCESS) {
        cuda->n_modules++;
        return STRAIT_OK;
    }
    return STRAIT_FAIL(
        STRAIT_ENOTSUP,
        "device cuda:%d: kernel file %s has no code for sm_%d%d and this driver (%s): "
        "update the driver, or build with STRAIT_CUDA_ARCHS=%d%d",
        be->ordinal, cuda->module, cuda->major, cuda->minor, strait_cuda_result_text(result),
        cuda->major, cuda->minor);
}

/* Reads the member whose header is at *at and advances *at past it. */
static strait_err next_member(const struct strait_cuda *cuda, const strait_file_map *map,
                              size_t *at, member *out) {
    if (map->bytes - *at < HEADER_BYTES) return broken(cuda);
    char digits[SIZE_DIGITS + 1] = {0};
    memcpy(digits, map->data + *at + SIZE_AT, SIZE_DIGITS);
    const size_t size = strtoul(digits, NULL, 10);
    *at += HEADER_BYTES;
    if (size > map->bytes - *at) return broken(cuda);
    *out = (member){map->data + *at, size};
    *at += size;
    if (size % 2 != 0 && *at < map->bytes) (*at)++; // members start at even offsets
    return STRAIT_OK;
}

static strait_err check_stamp(const struct strait_cuda *cuda, member stamp) {
    static const char own[] = STRAIT_CUDA_STAMP;
    if (stamp.bytes == sizeof own - 1 && memcmp(stamp.data, own, stamp.bytes) == 0)
        return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_EDATA,
                       "device cuda: kernel file %s is from another build than this program: copy "
                       "both from one build",
                       cuda->module);
}

static strait_err load_archive(struct strait_backend *be, const strait_file_map *map) {
    const struct strait_cuda *cuda = strait_cuda_of(be);
    size_t at = MAGIC_BYTES;
    member one;
    if (map->bytes <= MAGIC_BYTES || memcmp(map->data, "!<arch>\n", MAGIC_BYTES) != 0)
        return broken(cuda);
    if (map->data[at] == '/') // ar's own table of long names, if there is one
        STRAIT_TRY(next_member(cuda, map, &at, &one));
    STRAIT_TRY(next_member(cuda, map, &at, &one));
    STRAIT_TRY(check_stamp(cuda, one));
    while (at < map->bytes) {
        STRAIT_TRY(next_member(cuda, map, &at, &one));
        STRAIT_TRY(load(be, one));
    }
    return cuda->n_modules > 0 ? STRAIT_OK : broken(cuda);
}

strait_err strait_cuda_modules_load(struct strait_backend *be) {
    STRAIT_TRY(strait_cuda_module_path(strait_cuda_of(be)->module));
    strait_file_map map;
    STRAIT_TRY(strait_file_map_open(strait_cuda_of(be)->module, &map));
    const strait_err err = load_archive(be, &map);
    strait_file_map_close(&map);
    return err;
}

void strait_cuda_modules_unload(struct strait_cuda *cuda) {
    while (cuda->n_modules > 0)
        (void)cuda->driver->cuModuleUnload(cuda->modules[--cuda->n_modules]);
}

/* FNV-1a, folded: the slot where the search for a name starts. */
static size_t slot_of(const char *name) {
    uint32_t hash = 2166136261u;
    for (; *name != '\0'; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619u;
    return (hash ^ hash >> 16) % STRAIT_CUDA_KERNELS;
}

static strait_err resolve(const struct strait_backend *be, struct strait_cuda_kernel *kernel,
                          const char *name, strait_cuda_args args) {
    struct strait_cuda *cuda = strait_cuda_of(be);
    assert(cuda->n_found < STRAIT_CUDA_KERNELS / 2);
    CUresult result = CUDA_ERROR_NOT_FOUND;
    for (int i = 0; i < cuda->n_modules && result == CUDA_ERROR_NOT_FOUND; i++)
        result = cuda->driver->cuModuleGetFunction(&kernel->function, cuda->modules[i], name);
    if (result == CUDA_ERROR_NOT_FOUND)
        return STRAIT_FAIL(STRAIT_ENOTSUP,
                           "device cuda:%d: kernel %s is not in %s: the file is from another build "
                           "than this program",
                           be->ordinal, name, cuda->module);
    STRAIT_TRY(strait_cuda_check(be, result, name));
    STRAIT_TRY(strait_cuda_params_read(cuda->driver->cuFuncGetParamInfo, kernel->function, name,
                                       args, &kernel->params));
    kernel->name = name;
    kernel->shared = SHARED_ALWAYS;
    cuda->n_found++;
    return STRAIT_OK;
}

/* Open addressing: looks a kernel up, and asks the driver the first time. */
static strait_err find(const struct strait_backend *be, const char *name, strait_cuda_args args,
                       struct strait_cuda_kernel **out) {
    struct strait_cuda_kernel *found = strait_cuda_of(be)->found;
    size_t i = slot_of(name);
    while (found[i].name != NULL && strcmp(found[i].name, name) != 0)
        i = (i + 1) % STRAIT_CUDA_KERNELS;
    *out = &found[i];
    return found[i].name != NULL ? STRAIT_OK : resolve(be, &found[i], name, args);
}

static strait_err raise_shared(const struct strait_backend *be, struct strait_cuda_kernel *kernel,
                               unsigned bytes) {
    const CUresult result = strait_cuda_of(be)->driver->cuFuncSetAttribute(
        kernel->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)bytes);
    STRAIT_TRY(strait_cuda_check(be, result, kernel->name));
    kernel->shared = bytes;
    return STRAIT_OK;
}

static unsigned at_least_one(int64_t n) {
    return n > 0 ? (unsigned)n : 1u;
}

strait_err strait_cuda_launch(struct strait_stream *s, const char *kernel, strait_cuda_grid grid,
                              strait_cuda_args args) {
    if (grid.x == 0) return STRAIT_OK;
    assert(grid.x > 0 && grid.x <= INT32_MAX && grid.y <= 65535 && grid.z <= 65535);
    CUstream stream = NULL;
    struct strait_cuda_kernel *found = NULL;
    STRAIT_TRY(strait_cuda_enter(s, &stream));
    STRAIT_TRY(find(s->backend, kernel, args, &found));
    STRAIT_TRY(strait_cuda_args_check(kernel, args, &found->params));
    if (grid.shared > found->shared) STRAIT_TRY(raise_shared(s->backend, found, grid.shared));
    const CUresult result = strait_cuda_of(s->backend)
                                ->driver->cuLaunchKernel(found->function, (unsigned)grid.x,
                                                         at_least_one(grid.y), at_least_one(grid.z),
                                                         grid.threads, at_least_one(grid.threads_y),
                                                         1, grid.shared, stream, args.at, NULL);
    return strait_cuda_check(s->backend, result, kernel);
}
