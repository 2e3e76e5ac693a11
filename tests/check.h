/* check.h - included by every test: cmocka, and assertions for error codes and numbers. */
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

/* Fails a test that leaks our own allocations; LeakSanitizer checks those of libraries. */
__attribute__((destructor)) static void check_no_leaks(void) {
    if (strait_alloc_live() == 0) return;
    (void)fprintf(stderr, "%lld allocations were never freed\n", (long long)strait_alloc_live());
    _exit(1);
}

/* Fails with the error's detail unless `call` returns STRAIT_OK. */
#define CHECK_OK(call)                                                                       \
    do {                                                                                     \
        const strait_err check_err = (call);                                                 \
        if (check_err != STRAIT_OK)                                                          \
            fail_msg("%s: %s (%s)", #call, strait_err_text(check_err), strait_err_detail()); \
    } while (0)

/* Fails unless `call` returns `expected` with `text` somewhere in the error's detail. */
#define CHECK_FAILS(call, expected, text)                                                    \
    do {                                                                                     \
        const strait_err check_err = (call);                                                 \
        if (check_err != (expected))                                                         \
            fail_msg("%s: %s (%s)", #call, strait_err_text(check_err), strait_err_detail()); \
        if (strstr(strait_err_detail(), (text)) == NULL)                                     \
            fail_msg("%s: detail \"%s\" lacks \"%s\"", #call, strait_err_detail(), (text));  \
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
