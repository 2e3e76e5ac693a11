/* etcd_curl.c - loads libcurl when it is first used.
 *
 * Only runs with an etcd metastore need libcurl. All others must start on machines without it, and
 * should not load its forty dependencies. The functions have libcurl's own declarations. Without
 * the library, curl_easy_init returns NULL, which callers have to expect anyway. */
#define CURL_DISABLE_TYPECHECK // otherwise setopt is a macro
#include <curl/curl.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>

#undef curl_easy_setopt

/* Converts object pointers to function pointers, which POSIX allows and ISO C does not define. */
typedef union symbol {
    void *object;
    CURLcode (*global_init)(long);
    CURL *(*init)(void);
    void (*cleanup)(CURL *);
    CURLcode (*perform)(CURL *);
    CURLcode (*setopt)(CURL *, CURLoption, ...);
    const char *(*strerror)(CURLcode);
    struct curl_slist *(*append)(struct curl_slist *, const char *);
    void (*free_all)(struct curl_slist *);
} symbol;

static symbol global_init, init, cleanup, perform, setopt, describe, append, free_all;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int is_open; // written once, under `once`

static void open_library(void) {
    static const struct {
        const char *name;
        symbol *to;
    } wanted[] = {{"curl_global_init", &global_init}, {"curl_easy_init", &init},
                  {"curl_easy_cleanup", &cleanup},    {"curl_easy_perform", &perform},
                  {"curl_easy_setopt", &setopt},      {"curl_easy_strerror", &describe},
                  {"curl_slist_append", &append},     {"curl_slist_free_all", &free_all}};
    void *library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    int n_found = 0;
    const int n = (int)(sizeof wanted / sizeof *wanted);
    for (int i = 0; library != NULL && i < n; i++) {
        wanted[i].to->object = dlsym(library, wanted[i].name);
        n_found += wanted[i].to->object != NULL;
    }
    is_open = n_found == n;
}

static int has_library(void) {
    (void)pthread_once(&once, open_library);
    return is_open;
}

CURLcode curl_global_init(long flags) {
    return has_library() ? global_init.global_init(flags) : CURLE_FAILED_INIT;
}

CURL *curl_easy_init(void) {
    return has_library() ? init.init() : NULL;
}

void curl_easy_cleanup(CURL *curl) {
    if (curl != NULL) cleanup.cleanup(curl);
}

CURLcode curl_easy_perform(CURL *curl) {
    return curl != NULL ? perform.perform(curl) : CURLE_FAILED_INIT;
}

/* Every option takes one long or one pointer, which are passed alike on our platforms. */
CURLcode curl_easy_setopt(CURL *curl, CURLoption option, ...) {
    _Static_assert(sizeof(long) == sizeof(void *), "a long and a pointer are passed alike");
    if (curl == NULL) return CURLE_FAILED_INIT;
    va_list more;
    va_start(more, option);
    void *value = va_arg(more, void *); // NOLINT(clang-analyzer-valist.Uninitialized): it is not
    va_end(more);
    return setopt.setopt(curl, option, value);
}

const char *curl_easy_strerror(CURLcode code) {
    return has_library() ? describe.strerror(code) : "libcurl.so.4 is not installed";
}

struct curl_slist *curl_slist_append(struct curl_slist *list, const char *data) {
    return has_library() ? append.append(list, data) : NULL;
}

void curl_slist_free_all(struct curl_slist *list) {
    if (list != NULL) free_all.free_all(list);
}
