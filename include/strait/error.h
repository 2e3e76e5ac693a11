/* error.h - one error type for the whole library.
 *
 * A function that can fail returns strait_err. The library never prints and never exits: whoever
 * calls it reads strait_err_detail() and decides what to do. */
#pragma once

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

/* The largest thing an error has spoiled, and so what recovery has to replace. */
typedef enum strait_scope {
    STRAIT_SCOPE_NONE,    // nothing is wrong
    STRAIT_SCOPE_RETRY,   // call again later
    STRAIT_SCOPE_CALLER,  // the call itself was wrong: fix the code or the configuration
    STRAIT_SCOPE_LINK,    // drop this link, keep the stage
    STRAIT_SCOPE_STEP,    // discard this step, keep the weights
    STRAIT_SCOPE_PROCESS, // restart this worker from its last checkpoint
} strait_scope;

const char *strait_err_text(strait_err err);
strait_scope strait_err_scope(strait_err err);

/* What happened, in this thread, in one line: "corpus/train.bin: cut short at 1024 bytes".
 * Borrowed; valid until this thread fails again. Never NULL. */
const char *strait_err_detail(void);

/* Where in the source it was noticed: "data/shard.c:41". Same lifetime. */
const char *strait_err_where(void);

#ifdef __cplusplus
}
#endif
