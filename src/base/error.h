/* error.h - how the library creates and forwards errors.
 *
 * The function that first detects an error describes it with STRAIT_FAIL for the reader of the
 * message: it names the file, key or peer, what was expected, and what to do. Callers only forward
 * it with STRAIT_TRY. The description is kept per thread. */
#pragma once

#include <strait/error.h>

void strait_err_note(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Prepends "context: " to the noted detail, for a caller that knows the file or key. */
void strait_err_prefix(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Notes the detail and yields `err`. It is a comma expression, so that the compiler and the
 * analyser see the constant. */
#define STRAIT_FAIL(err, ...) (strait_err_note(__FILE__, __LINE__, __VA_ARGS__), (err))

#define STRAIT_TRY(call)                          \
    do {                                          \
        const strait_err try_err = (call);        \
        if (try_err != STRAIT_OK) return try_err; \
    } while (0)

#define STRAIT_TRY_GOTO(err, label, call)   \
    do {                                    \
        (err) = (call);                     \
        if ((err) != STRAIT_OK) goto label; \
    } while (0)
