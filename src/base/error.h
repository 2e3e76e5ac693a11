/* error.h - how the library creates and forwards errors.
 *
 * The function that first detects an error describes it with STRAIT_FAIL for the reader of the
 * message: it names the file, key or peer, what was expected, and what to do. Callers only forward
 * it with STRAIT_TRY. The description is kept per thread. */
#pragma once

#include <strait/error.h>

/* Prepends "context: " to the noted detail, for a caller that knows the file or key. */
void strait_err_prefix(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define STRAIT_TRY_GOTO(err, label, call)   \
    do {                                    \
        (err) = (call);                     \
        if ((err) != STRAIT_OK) goto label; \
    } while (0)
