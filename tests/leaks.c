/* leaks.c - spares LeakSanitizer the search after a program that has given everything back.
 *
 * On ARM it walks all of an address space, which takes four seconds of every test. Where the heap
 * is no larger than before main nothing can have leaked; ASan knows its size. What stays with stdio
 * and with glibc's threads would be there in every program: STRAIT_TEST_ENVIRONMENT sees to the
 * latter. */
#include <stddef.h>
#include <stdio.h>

size_t __sanitizer_get_current_allocated_bytes(void); // NOLINT: ASan's
int __lsan_is_turned_off(void); // NOLINT: LeakSanitizer asks it before it begins

static size_t bytes_before;

__attribute__((constructor)) static void count_before(void) {
    static char buffer[BUFSIZ];
    (void)setvbuf(stdout, buffer, _IOLBF, sizeof buffer);
    bytes_before = __sanitizer_get_current_allocated_bytes();
}

__attribute__((visibility("default"))) int __lsan_is_turned_off(void) {
    return __sanitizer_get_current_allocated_bytes() <= bytes_before;
}
