#include "base/alloc.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__
    #include <malloc.h>
#endif
#ifdef __linux__
    #include <sys/mman.h>
#endif

enum {
    ALIGNMENT = 64,
    HUGE_PAGE = 2 << 20,
    HUGE_FROM = 4 * HUGE_PAGE // bytes from which an allocation asks for huge pages
};

static _Atomic int64_t n_made, n_live;
static _Atomic int64_t fail_at; // counts down to the allocation that fails; 0: off

/* Tests make the n-th allocation fail, for each n, to check that every error path frees what it
 * has. Subtracting atomically lets exactly one thread see the n-th. */
static int must_fail(void) {
    int64_t left = atomic_load(&fail_at);
    return left > 0 && atomic_fetch_sub(&fail_at, 1) == 1;
}

/* Asks for huge pages inside a large allocation, before it is first touched: kernels that walk down
 * the columns of a matrix would otherwise miss the TLB in every row. The kernel may ignore it. */
static void ask_for_huge_pages(char *memory, size_t bytes) {
#ifdef MADV_HUGEPAGE
    const size_t before = (HUGE_PAGE - (uintptr_t)memory % HUGE_PAGE) % HUGE_PAGE;
    if (bytes < HUGE_FROM) return;
    (void)madvise(memory + before, (bytes - before) / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
#else
    (void)memory, (void)bytes;
#endif
}

/* Aligned to a cache line, so that vector loads never cross one. The size is rounded up because
 * aligned_alloc requires a multiple, and an empty request still returns a pointer to free. */
static strait_err take(size_t count, size_t size, const char *what, size_t *bytes, void **out) {
    atomic_fetch_add(&n_made, 1);
    if (size != 0 && count > (SIZE_MAX - ALIGNMENT) / size)
        return STRAIT_FAIL(STRAIT_ENOMEM, "%s: %zu items of %zu bytes", what, count, size);
    *bytes = (count * size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (*bytes == 0) *bytes = ALIGNMENT;
    void *memory = must_fail() ? NULL : aligned_alloc(ALIGNMENT, *bytes);
    if (memory == NULL) return STRAIT_FAIL(STRAIT_ENOMEM, "%s: %zu bytes", what, *bytes);
    ask_for_huge_pages(memory, *bytes);
    atomic_fetch_add(&n_live, 1);
    *out = memory;
    return STRAIT_OK;
}

/* For buffers that are written before they are read, where zeroing would cost time. */
strait_err strait_alloc_unset(size_t count, size_t size, const char *what, void **out) {
    size_t bytes = 0;
    return take(count, size, what, &bytes, out);
}

strait_err strait_alloc(size_t count, size_t size, const char *what, void **out) {
    size_t bytes = 0;
    STRAIT_TRY(take(count, size, what, &bytes, out));
    memset(*out, 0, bytes);
    return STRAIT_OK;
}

/* Not realloc: new items must be zeroed and the alignment kept. */
strait_err strait_alloc_grow(void **memory, size_t count, size_t want, size_t size,
                             const char *what) {
    void *bigger = NULL;
    STRAIT_TRY(strait_alloc(want, size, what, &bigger));
    if (*memory != NULL) memcpy(bigger, *memory, (count < want ? count : want) * size);
    strait_alloc_free(*memory);
    *memory = bigger;
    return STRAIT_OK;
}

/* Memory of a device is not allocated here, but tests must be able to make it fail, too. */
strait_err strait_alloc_admit(const char *what, size_t bytes) {
    atomic_fetch_add(&n_made, 1);
    if (must_fail()) return STRAIT_FAIL(STRAIT_ENOMEM, "%s: %zu bytes", what, bytes);
    return STRAIT_OK;
}

strait_err strait_alloc_string(const char *text, char **out) {
    const size_t bytes = strlen(text) + 1;
    void *copy = NULL;
    STRAIT_TRY(strait_alloc(bytes, 1, "text", &copy));
    memcpy(copy, text, bytes);
    *out = copy;
    return STRAIT_OK;
}

void strait_alloc_free(void *memory) {
    if (memory != NULL) atomic_fetch_sub(&n_live, 1);
    free(memory);
}

/* glibc keeps freed blocks below the top of its heap until it is asked. */
void strait_alloc_trim(void) {
#ifdef __GLIBC__
    (void)malloc_trim(0);
#endif
}

int64_t strait_alloc_count(void) {
    return atomic_load(&n_made);
}

int64_t strait_alloc_live(void) {
    return atomic_load(&n_live);
}

void strait_alloc_fail_at(int64_t n) {
    atomic_store(&fail_at, n);
}
