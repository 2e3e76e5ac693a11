/* leaks.c - skips LeakSanitizer's search in a program that has freed everything.
 *
 * On ARM the search walks the whole address space, which takes four seconds per test. If the heap
 * is no larger than before main, nothing can have leaked; ASan knows its size. Buffers of stdio and
 * of glibc's threads would count in every program: the constructor below handles the former,
 * STRAIT_TEST_ENVIRONMENT the latter. */
#include <stddef.h>
#include <stdio.h>

size_t __sanitizer_get_current_allocated_bytes(void); // NOLINT: declared by ASan
int __lsan_is_turned_off(void); // NOLINT: LeakSanitizer calls it before its search

static size_t bytes_before;

__attribute__((constructor)) static void count_before(void) {
    static char buffer[BUFSIZ];
    (void)setvbuf(stdout, buffer, _IOLBF, sizeof buffer);
    bytes_before = __sanitizer_get_current_allocated_bytes();
}

__attribute__((visibility("default"))) int __lsan_is_turned_off(void) {
    return __sanitizer_get_current_allocated_bytes() <= bytes_before;
}
