/* check.h - what every test includes: cmocka, and asserts for our errors and numbers. */
#pragma once

#include "base/alloc.h"
#include "base/error.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* A program that ends well has given back what it took; what libraries keep, LeakSanitizer sees. */
__attribute__((destructor)) static void check_nothing_is_left(void) {
    if (strait_alloc_live() == 0) return;
    (void)fprintf(stderr, "%lld allocations were never freed\n", (long long)strait_alloc_live());
    _exit(1);
}

/* `call` succeeds; otherwise fails with its detail. */
#define CHECK_OK(call)                                                                       \
    do {                                                                                     \
        const strait_err check_err = (call);                                                 \
        if (check_err != STRAIT_OK)                                                          \
            fail_msg("%s: %s (%s)", #call, strait_err_text(check_err), strait_err_detail()); \
    } while (0)

/* `call` fails with `expected` and says `words` somewhere in its detail. */
#define CHECK_FAILS(call, expected, words)                                                   \
    do {                                                                                     \
        const strait_err check_err = (call);                                                 \
        if (check_err != (expected))                                                         \
            fail_msg("%s: %s (%s)", #call, strait_err_text(check_err), strait_err_detail()); \
        if (strstr(strait_err_detail(), (words)) == NULL)                                    \
            fail_msg("%s: detail \"%s\" lacks \"%s\"", #call, strait_err_detail(), (words)); \
    } while (0)

#define CHECK(condition)                                            \
    do {                                                            \
        if (!(condition)) fail_msg("CHECK(%s) failed", #condition); \
    } while (0)

#define CHECK_NEAR(a, b, tolerance)                                                           \
    do {                                                                                      \
        const double check_a = (a), check_b = (b);                                            \
        if (!(fabs(check_a - check_b) <= (tolerance)))                                        \
            fail_msg("%s = %.9g, %s = %.9g, apart by more than %g", #a, check_a, #b, check_b, \
                     (double)(tolerance));                                                    \
    } while (0)
