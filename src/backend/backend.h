/* backend.h - a device: where tensors live and how work is queued on it.
 *
 * To add a backend: fill one strait_backend_ops and one strait_kernels (with the optional tables
 * you have), add a line to registry.c, and pass tests/contract/backend_*.c. Only backend/cuda/ may
 * include a CUDA header.
 *
 * An open backend is used by one thread at a time, except that other threads may copy and query
 * events on streams of their own where the backend allows it (stage/staging.h). */
#pragma once

#include "backend/kernels.h"
#include "base/error.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    STRAIT_BACKEND_KERNELS = 144 // bytes of the names of a device's kernels
};

struct strait_backend {
    const struct strait_backend_ops *ops;
    const struct strait_kernels *kernels; // set by init
    int ordinal;                          // which device of its kind
    int n_threads;    // cpu: threads to use; 0 for one per core, replaced by the count in init
    int is_reference; // cpu: use the reference loops that define each kernel
    /* Type of activations. STRAIT_BF16 only where the device computes in it (init refuses
     * otherwise); products of f32 matrices may then round their factors to tf32. */
    strait_dtype precision;
    int has_fp8; // products may round their factors to 8 bits; init refuses where it cannot
    void *state; // ops->state_size bytes, zeroed before init
};

/* An ordered queue of work on one device. Two streams are ordered only by order(). */
struct strait_stream {
    struct strait_backend *backend;
    void *native; // the device's own handle; unused on the cpu
};

/* A point in a stream's work whose completion the host can query or wait for. */
struct strait_event {
    struct strait_backend *backend;
    void *native; // the device's own handle; unused on the cpu
};

struct strait_backend_ops {
    const char *name; // "cpu", "cuda"
    int is_host;      // device memory is host memory: no copy is needed to read it
    size_t state_size;
    /* Device memory that each stream takes for partial results of kernels: this much, or
     * query_bytes per value of queries of a microbatch (the gradient of attention) where that is
     * more. */
    size_t stream_bytes, query_bytes;

    /* The type of activations to use on that device by default. Where this is less than usual for
     * such devices, *why receives the reason, else NULL. Opens nothing; a device that does not
     * respond counts as one that supports everything. NULL: f32. */
    strait_dtype (*precision)(int ordinal, const char **why);

    /* How many such devices this machine has; opens none of them. NULL: one. */
    int (*count)(void);

    /* Names the kernels that a device of that precision would use, for people: "avx512". Opens
     * nothing. NULL where that is not known before the device is open. */
    void (*name_kernels)(strait_dtype precision, char *out, size_t capacity);

    /* Opens device be->ordinal and sets be->kernels. fini accepts a failed or absent init. */
    strait_err (*init)(struct strait_backend *be);
    void (*fini)(struct strait_backend *be);

    /* Device memory, zeroed. Called while planning, never inside a training step. */
    strait_err (*alloc)(struct strait_backend *be, size_t bytes, void **out);
    void (*release)(struct strait_backend *be, void *memory); // accepts NULL

    /* Host memory that the device copies from and to without a bounce buffer (pinned). */
    strait_err (*alloc_host)(struct strait_backend *be, size_t bytes, void **out);
    void (*release_host)(struct strait_backend *be, void *memory); // accepts NULL

    strait_err (*stream_open)(struct strait_backend *be, struct strait_stream *s);
    void (*stream_close)(struct strait_stream *s);
    /* Copies run in the stream's order. Host memory from alloc_host must stay untouched until the
     * stream, or an event recorded after the copy, has been waited for. Other host memory is free
     * again when upload returns, and must stay untouched until such a wait after download; copying
     * it may block until the stream is idle. */
    strait_err (*upload)(struct strait_stream *s, void *device, const void *host, size_t bytes);
    strait_err (*download)(struct strait_stream *s, void *host, const void *device, size_t bytes);

    /* Later work on `waiter` starts after all work queued so far on `s`. */
    strait_err (*order)(struct strait_stream *s, struct strait_stream *waiter);

    /* event_record moves the event behind all work queued so far on `s`. event_query reports
     * whether that work is done and, with `waits`, blocks until it is. An event that was never
     * recorded is reached. Errors are those of wait. */
    strait_err (*event_open)(struct strait_backend *be, struct strait_event *e);
    void (*event_close)(struct strait_event *e); // accepts a zeroed one
    strait_err (*event_record)(struct strait_stream *s, struct strait_event *e);
    strait_err (*event_query)(struct strait_event *e, int waits, int *is_reached);

    /* Blocks until the stream is idle. Reports any failure of queued work as STRAIT_EDEVICE. */
    strait_err (*wait)(struct strait_stream *s);

    /* The most bytes of device memory this backend has held so far, without the driver's own; NULL
     * where the device is the host, whose operating system knows. */
    size_t (*peak_bytes)(const struct strait_backend *be);
    /* Bytes of device memory that no process has allocated; NULL as above. */
    size_t (*free_bytes)(const struct strait_backend *be);

    /* A description for people: "2 threads, avx512". Valid until close. */
    const char *(*describe)(const struct strait_backend *be);
};

/* What to open; fields as in struct strait_backend. */
typedef struct strait_backend_spec {
    const char *name;
    int ordinal;
    int n_threads;
    int is_reference;
    strait_dtype precision;
    int has_fp8;
} strait_backend_spec;

/* STRAIT_ECONFIG where no backend has that name; the error text lists the names. */
strait_err strait_backend_check_name(const char *name);

/* Opens a backend; the caller closes it. STRAIT_ECONFIG for a device that does not exist or does
 * not support spec.precision, STRAIT_ENOTSUP where the build or machine lacks it. */
strait_err strait_backend_open(strait_backend_spec spec, struct strait_backend **out);
void strait_backend_close(struct strait_backend **be); // sets *be to NULL; accepts NULL

/* Opens a device, writes the bytes of memory that no process has allocated on it, and closes it
 * again; 0 where its memory is the host's. Errors are those of strait_backend_open. */
strait_err strait_backend_free_bytes(const strait_backend_spec *spec, double *out);

/* ops->precision of the backend with this name; f32 where the name is unknown. */
strait_dtype strait_backend_precision(const char *name, int ordinal, const char **why);

/* How many devices of this kind the machine has: 0 where it has none, or the name is unknown. */
int strait_backend_count(const char *name);

/* ops->name_kernels of the backend with this name; "" where it or the name is unknown. */
void strait_backend_name_kernels(const char *name, strait_dtype precision, char *out,
                                 size_t capacity);

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
