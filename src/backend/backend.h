/* backend.h - a device: where tensors live and how work is queued on them.
 *
 * To add a backend: fill one strait_backend_ops and one strait_kernels, add a line to registry.c,
 * and pass tests/contract/backend.c. Only backend/cuda/ may include a CUDA header. */
#pragma once

#include "backend/kernels.h"
#include "base/error.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct strait_backend {
    const struct strait_backend_ops *ops;
    const struct strait_kernels *kernels;
    int ordinal;      // which device of its kind
    int n_threads;    // cpu: threads to use, 0 for one a core
    int is_reference; // cpu: keep the plain loops that define each kernel
    /* Of activations. STRAIT_BF16 only where the device computes in it (init refuses otherwise);
     * then products of f32 matrices may round their factors to tf32. */
    strait_dtype precision;
    void *state; // ops->state_size bytes, zeroed before init
};

/* An ordered queue of work on one device. Work on two streams meets only through order(). */
struct strait_stream {
    struct strait_backend *backend;
    void *native; // what the device keeps for it; unused on the cpu
};

/* A point in a stream's work that the host can look for. */
struct strait_mark {
    struct strait_backend *backend;
    void *native; // what the device keeps for it; unused on the cpu
};

struct strait_backend_ops {
    const char *name; // "cpu", "cuda"
    int is_host;      // its memory is the host's: no copy is needed to read it
    size_t state_size;
    size_t stream_bytes; // of device memory, that a stream takes for its kernels' partial results

    /* What activations are kept in on that device unless someone says otherwise; `why` gets words
     * where that is not what such devices are known for, else NULL. Asks, but opens nothing; a
     * device that does not answer counts as one that has everything. NULL: f32. */
    strait_dtype (*precision)(int ordinal, const char **why);

    /* Opens device be->ordinal and sets be->kernels. fini tolerates a failed or absent init. */
    strait_err (*init)(struct strait_backend *be);
    void (*fini)(struct strait_backend *be);

    /* Device memory, zeroed. Called while planning, never inside a training step. */
    strait_err (*alloc)(struct strait_backend *be, size_t bytes, void **out);
    void (*release)(struct strait_backend *be, void *memory); // accepts NULL

    /* Host memory that the device can reach without a copy through a bounce buffer. */
    strait_err (*alloc_host)(struct strait_backend *be, size_t bytes, void **out);
    void (*release_host)(struct strait_backend *be, void *memory); // accepts NULL

    strait_err (*stream_open)(struct strait_backend *be, struct strait_stream *s);
    void (*stream_close)(struct strait_stream *s);
    /* Copies run in the stream's order. `host` from alloc_host belongs to the copy until the
     * stream, or a mark behind the copy, is waited for; other host memory does until the call
     * returns when it is read, and until such a wait when it is written, and may cost a wait for
     * the stream. */
    strait_err (*upload)(struct strait_stream *s, void *device, const void *host, size_t bytes);
    strait_err (*download)(struct strait_stream *s, void *host, const void *device, size_t bytes);

    /* Later work on `waiter` starts after all work queued so far on `s`. */
    strait_err (*order)(struct strait_stream *s, struct strait_stream *waiter);

    /* mark puts a mark behind all work queued so far on `s`, wherever it was before. reach tells
     * whether that work is done and, with `waits`, blocks until it is; a mark that was never put
     * anywhere is reached. It reports failures as wait does. */
    strait_err (*mark_open)(struct strait_backend *be, struct strait_mark *m);
    void (*mark_close)(struct strait_mark *m); // accepts a zeroed one
    strait_err (*mark)(struct strait_stream *s, struct strait_mark *m);
    strait_err (*reach)(struct strait_mark *m, int waits, int *is_reached);

    /* Blocks until the stream is idle. Reports any failure of queued work as STRAIT_EDEVICE. */
    strait_err (*wait)(struct strait_stream *s);

    /* Bytes of device memory taken at most so far, beside what the driver keeps for the process
     * itself; NULL where the device is the host, whose operating system knows. */
    size_t (*used)(const struct strait_backend *be);
    /* Bytes of device memory that nobody on this machine has taken; NULL as above. */
    size_t (*spare)(const struct strait_backend *be);

    /* What this device is, for people: "2 threads, avx512". Borrowed. */
    const char *(*describe)(const struct strait_backend *be);
};

typedef struct strait_backend_spec {
    const char *name;
    int ordinal;
    int n_threads;
    int is_reference; // cpu: keep the plain loops that define each kernel
    strait_dtype precision;
} strait_backend_spec;

/* STRAIT_ECONFIG where no backend has that name; the words say which names there are. */
strait_err strait_backend_check_name(const char *name);

strait_err strait_backend_open(strait_backend_spec spec, struct strait_backend **out);
void strait_backend_close(struct strait_backend **be); // sets *be to NULL; accepts NULL

/* ops->precision of the backend of this name; f32 where there is none. */
strait_dtype strait_backend_precision(const char *name, int ordinal, const char **why);

/* Checks that an open backend has every optional kernel table in `needs` (enum
 * strait_kernel_need). Otherwise STRAIT_ENOTSUP; the text names the backend, what it lacks and
 * `user`, a codec or model part such as "codec topk". */
strait_err strait_backend_require(const struct strait_backend *be, unsigned needs,
                                  const char *user);

/* The registry, ended by NULL. */
extern const struct strait_backend_ops *const strait_backends[];

#ifdef __cplusplus
}
#endif
