/* error.h - one error type for the whole library.
 *
 * A function that can fail returns strait_err. The library never prints and never exits: the caller
 * reads strait_err_detail() and decides what to do. Details are kept per thread, so every function
 * here may be called from any thread. */
#pragma once

#include <strait/api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Name, value, scope, text. Values are stable: they appear in logs and on the wire. */
#define STRAIT_ERR_MAP(X)                                                \
    X(OK, 0, NONE, "success")                                            \
    X(EAGAIN, 1, RETRY, "not ready, try again")                          \
    X(ETIMEDOUT, 2, RETRY, "deadline passed")                            \
    X(EINTERRUPTED, 3, RETRY, "interrupted")                             \
    X(EINVAL, 10, CALLER, "invalid argument")                            \
    X(ENOTSUP, 11, CALLER, "not supported")                              \
    X(ECONFIG, 12, CALLER, "run file or command line is wrong")          \
    X(EINUSE, 13, CALLER, "address is in use")                           \
    X(EEXISTS, 14, CALLER, "output exists already")                      \
    X(ECLOSED, 20, LINK, "peer closed the link")                         \
    X(EPROTO, 21, LINK, "peer broke the protocol")                       \
    X(EAUTH, 22, LINK, "peer failed authentication")                     \
    X(ENONFINITE, 30, STEP, "loss or gradient is not finite")            \
    X(EDEVICE, 40, PROCESS, "device failed")                             \
    X(ENOMEM, 41, PROCESS, "out of memory")                              \
    X(EIO, 42, PROCESS, "reading or writing a file failed")              \
    X(EDATA, 43, PROCESS, "data or checkpoint is not what it should be") \
    X(EDEPOSED, 44, PROCESS, "another coordinator has taken over")

typedef enum strait_err {
#define X(name, value, scope, text) STRAIT_##name = (value),
    STRAIT_ERR_MAP(X)
#undef X
} strait_err;

/* How much an error has made unusable, and so what recovery has to replace. */
typedef enum strait_scope {
    STRAIT_SCOPE_NONE,    // nothing is wrong
    STRAIT_SCOPE_RETRY,   // call again later
    STRAIT_SCOPE_CALLER,  // the call itself was wrong: fix the code or the configuration
    STRAIT_SCOPE_LINK,    // drop this link, keep the stage
    STRAIT_SCOPE_STEP,    // discard this step, keep the weights
    STRAIT_SCOPE_PROCESS, // restart this worker from its last checkpoint
} strait_scope;

/* What an error code means in general: "out of memory". Static, never NULL. */
STRAIT_API const char *strait_err_text(strait_err err);

/* What has to be replaced after this error. */
STRAIT_API strait_scope strait_err_scope(strait_err err);

/* What happened, in one line: "corpus/train.bin: cut short at 1024 bytes". Borrowed; valid until a
 * function fails in this thread again. Never NULL. */
STRAIT_API const char *strait_err_detail(void);

/* Where in the source the error was noticed: "data/shard.c:41". Same lifetime. */
STRAIT_API const char *strait_err_where(void);

/* Sets the detail of this thread, as printf does. Callbacks that return an error call it, through
 * STRAIT_FAIL, so that the caller of the library learns why. Control characters are replaced. */
STRAIT_API void strait_err_note(const char *file, int line, const char *format, ...)
    STRAIT_PRINTF(3, 4);

/* Notes the detail and yields `err`. A comma expression, so that compiler and analyser see the
 * constant. */
#define STRAIT_FAIL(err, ...) (strait_err_note(__FILE__, __LINE__, __VA_ARGS__), (err))

/* Returns the error of `call` from the current function, if there is one. */
#define STRAIT_TRY(call)                          \
    do {                                          \
        const strait_err try_err = (call);        \
        if (try_err != STRAIT_OK) return try_err; \
    } while (0)

#ifdef __cplusplus
}
#endif
