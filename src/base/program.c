#include "base/program.h"

#include <strait/version.h>

#include "base/alloc.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char name[] = "strait";

/* The only global setting of the library. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char chosen[STRAIT_PATH_MAX]; // guarded by mutex; empty: not set

strait_err strait_set_program(const char *path) {
    char copy[STRAIT_PATH_MAX] = "";
    if (path != NULL) STRAIT_TRY(strait_file_path(copy, "%s", path));
    (void)pthread_mutex_lock(&mutex);
    memcpy(chosen, copy, sizeof chosen);
    (void)pthread_mutex_unlock(&mutex);
    return STRAIT_OK;
}

const char *strait_version(void) {
    return STRAIT_VERSION;
}

void strait_free(void *memory) {
    strait_alloc_free(memory);
}

static void get_chosen(char out[STRAIT_PATH_MAX]) {
    (void)pthread_mutex_lock(&mutex);
    memcpy(out, chosen, sizeof chosen);
    (void)pthread_mutex_unlock(&mutex);
}

static void cut_to_folder(char path[STRAIT_PATH_MAX]) {
    char *slash = strrchr(path, '/');
    if (slash != NULL) *slash = '\0';
}

/* The file this code was loaded from. The loader names the executable itself by an empty string,
 * and libraries by a path that may be relative to a folder that has been left since, so both are
 * resolved at once where they can be. */
static void get_own_file(char out[STRAIT_PATH_MAX]) {
    Dl_info info;
    struct link_map *map = NULL;
    const int is_found = dladdr1(&name, &info, (void **)&map, RTLD_DL_LINKMAP) != 0 && map != NULL;
    const int is_library = is_found && map->l_name != NULL && map->l_name[0] != '\0';
    char *whole = realpath(is_library ? map->l_name : "/proc/self/exe", NULL);
    out[0] = '\0';
    if (whole != NULL && strait_file_path(out, "%s", whole) != STRAIT_OK) out[0] = '\0';
    free(whole); // allocated by realpath, not by base/alloc
}

void strait_program_folder(char out[STRAIT_PATH_MAX]) {
    get_chosen(out);
    if (strchr(out, '/') == NULL) get_own_file(out); // a bare name is looked up in PATH
    cut_to_folder(out);
}

static int is_program(const char *path) {
    return strait_file_is_regular(path) && access(path, X_OK) == 0;
}

static int is_in_path(char out[STRAIT_PATH_MAX]) {
    /* Nothing in this library changes the environment, so threads may read it. */
    const char *folders = getenv("PATH"); // NOLINT(concurrency-mt-unsafe)
    while (folders != NULL && *folders != '\0') {
        const size_t n = strcspn(folders, ":");
        if (n > 0 && strait_file_path(out, "%.*s/%s", (int)n, folders, name) == STRAIT_OK &&
            is_program(out))
            return 1;
        folders += n + (folders[n] == ':');
    }
    return 0;
}

strait_err strait_program_path(char out[STRAIT_PATH_MAX]) {
    static const char *const places[] = {".", "../bin", "../../bin"};
    char folder[STRAIT_PATH_MAX];
    get_chosen(out);
    if (out[0] != '\0') return STRAIT_OK;
    strait_program_folder(folder);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (strait_file_path(out, "%s/%s/%s", folder, places[i], name) == STRAIT_OK &&
            is_program(out))
            return STRAIT_OK;
    if (is_in_path(out)) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ECONFIG,
                       "the program strait, which runs the stages, is neither beside %s, in its "
                       "../bin, nor in PATH: install it, name it with strait_set_program, or set "
                       "link.transport to inproc",
                       folder);
}
