/* library.c - finds CUDA's libraries and the module file. */
#include "backend/cuda/library.h"

#include "base/program.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char system_folder[] = "/usr/local/cuda/lib64";

/* The program never changes its environment, so reading it is safe from any thread. */
static const char *environment(const char *name) {
    const char *value = getenv(name); // NOLINT(concurrency-mt-unsafe)
    return value != NULL ? value : "";
}

/* An empty folder would mean the root of the file system, so it is skipped. */
static void *open_in(const char *folder, size_t n, const char *name) {
    char path[STRAIT_CUDA_PATH];
    const int length = snprintf(path, sizeof path, "%.*s/%s", (int)n, folder, name);
    if (n == 0 || length < 0 || (size_t)length >= sizeof path) return NULL;
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static void *open_in_list(const char *folders, const char *name) {
    void *library = NULL;
    while (library == NULL && *folders != '\0') {
        const size_t n = strcspn(folders, ":");
        library = open_in(folders, n, name);
        folders += n + (folders[n] == ':');
    }
    return library;
}

/* The system's own choice comes first, then the user's folder, then the places where CUDA is
 * usually installed. */
static void *open_anywhere(const char *name) {
    char folder[STRAIT_PATH_MAX];
    strait_program_folder(folder);
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) library = open_in_list(environment("STRAIT_CUDA_LIBS"), name);
    if (library == NULL) library = open_in(folder, strlen(folder), name);
    if (library == NULL) library = open_in(system_folder, strlen(system_folder), name);
    return library;
}

/* Reports where the library was found, because several versions may be installed. */
strait_err strait_cuda_library_open(const char *name, char path[STRAIT_CUDA_PATH], void **out) {
    void *library = open_anywhere(name);
    if (library == NULL)
        return STRAIT_FAIL(STRAIT_ENOTSUP,
                           "device cuda: %s not found by the system's loader, in STRAIT_CUDA_LIBS "
                           "(\"%s\"), next to the program or in %s: install CUDA's libraries, or "
                           "set STRAIT_CUDA_LIBS to their folder",
                           name, environment("STRAIT_CUDA_LIBS"), system_folder);
    struct link_map *map = NULL;
    const int has_map = dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map != NULL;
    (void)snprintf(path, STRAIT_CUDA_PATH, "%s", has_map ? map->l_name : name);
    *out = library;
    return STRAIT_OK;
}

/* Fails when the library is opened, not when a missing function is first called. */
strait_err strait_cuda_library_table(void *library, const char *const *names, size_t n,
                                     void *table) {
    for (size_t i = 0; i < n; i++) {
        void *address = dlsym(library, names[i]);
        if (address == NULL) return STRAIT_FAIL(STRAIT_ENOTSUP, "it does not export %s", names[i]);
        memcpy((char *)table + i * sizeof address, &address, sizeof address);
    }
    return STRAIT_OK;
}

/* The kernels lie beside the program in the build folder, and in lib/ once installed. */
strait_err strait_cuda_module_path(char path[STRAIT_CUDA_PATH]) {
    static const char *const candidates[] = {"strait.cuda", "../lib/strait/strait.cuda",
                                             "../bin/strait.cuda", "../../bin/strait.cuda"};
    const char *named = environment("STRAIT_CUDA_MODULE");
    if (*named != '\0') {
        if (access(named, R_OK) != 0)
            return STRAIT_FAIL(STRAIT_ENOTSUP,
                               "device cuda: STRAIT_CUDA_MODULE names %s, which "
                               "cannot be read",
                               named);
        (void)snprintf(path, STRAIT_CUDA_PATH, "%s", named);
        return STRAIT_OK;
    }
    char folder[STRAIT_PATH_MAX];
    strait_program_folder(folder);
    for (size_t i = 0; i < sizeof candidates / sizeof candidates[0]; i++) {
        const int n = snprintf(path, STRAIT_CUDA_PATH, "%s/%s", folder, candidates[i]);
        if (n > 0 && n < STRAIT_CUDA_PATH && access(path, R_OK) == 0) return STRAIT_OK;
    }
    return STRAIT_FAIL(STRAIT_ENOTSUP,
                       "device cuda: kernel file strait.cuda not found in %s, its "
                       "../lib/strait or ../bin, or its path in STRAIT_CUDA_MODULE",
                       folder);
}

const char *strait_cuda_tune_path(void) {
    return environment("STRAIT_CUDA_TUNE");
}

static void add_folders(const char *folders, void *user,
                        void (*add)(void *user, const char *path, int may_write)) {
    char folder[STRAIT_CUDA_PATH];
    while (*folders != '\0') {
        const size_t n = strcspn(folders, ":");
        if (n > 0 && n < sizeof folder) {
            (void)snprintf(folder, sizeof folder, "%.*s", (int)n, folders);
            add(user, folder, 0);
        }
        folders += n + (folders[n] == ':');
    }
}

void strait_cuda_paths(void *user, void (*add)(void *user, const char *path, int may_write)) {
    char path[STRAIT_PATH_MAX];
    strait_program_folder(path);
    add(user, path, 0);
    if (strait_cuda_module_path(path) == STRAIT_OK) add(user, path, 0);
    add_folders(environment("LD_LIBRARY_PATH"), user, add);
    add_folders(environment("STRAIT_CUDA_LIBS"), user, add);
    if (*strait_cuda_tune_path() != '\0') add(user, strait_cuda_tune_path(), 1);
}
