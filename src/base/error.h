/* error.h - how the library's own code makes and forwards errors.
 *
 * Whoever first notices a fault describes it with STRAIT_FAIL, for the reader of the message: name
 * the file, key or peer, what was expected, what to do. Everyone above only forwards it with
 * STRAIT_TRY. */
#pragma once

#include <strait/error.h>

void strait_err_note(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "context: " before the detail already noted, for a caller that knows the file or key. */
void strait_err_prefix(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Notes the detail and yields `err`. A comma expression, so that compiler and analyser see the
 * constant. */
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
