/* cuda.c - an NVIDIA GPU as a device: memory, streams, copies, events.
 *
 * The driver's context is a property of the calling thread, so every entry point makes it current
 * first (strait_cuda_use): other threads copy on streams of their own. */
#include "backend/cuda/cuda.h"

#include "base/alloc.h"

#include <stdio.h>
#include <string.h>

enum {
    BF16_MAJOR = 8 // compute capability from which bf16 is native
};

/* Out of memory is told apart, because the user can do something about it. */
strait_err strait_cuda_check(const struct strait_backend *be, CUresult result, const char *what) {
    if (result == CUDA_SUCCESS) return STRAIT_OK;
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return STRAIT_FAIL(STRAIT_ENOMEM, "device cuda:%d: %s: out of memory", be->ordinal, what);
    return STRAIT_FAIL(STRAIT_EDEVICE, "device cuda:%d: %s: %s", be->ordinal, what,
                       strait_cuda_result_text(result));
}

strait_err strait_cuda_use(const struct strait_backend *be) {
    const struct strait_cuda *cuda = strait_cuda_of(be);
    return strait_cuda_check(be, cuda->driver->cuCtxSetCurrent(cuda->context),
                             "making its context current");
}

strait_err strait_cuda_enter(const struct strait_stream *s, CUstream *out) {
    STRAIT_TRY(strait_cuda_use(s->backend));
    *out = strait_cuda_queue_of(s)->stream;
    return STRAIT_OK;
}

int strait_cuda_processors(const struct strait_stream *s) {
    return strait_cuda_of(s->backend)->n_processors;
}

static strait_err ask(const struct strait_backend *be, CUdevice_attribute what, int *out) {
    const struct strait_cuda *cuda = strait_cuda_of(be);
    return strait_cuda_check(be, cuda->driver->cuDeviceGetAttribute(out, what, cuda->device),
                             "querying its attributes");
}

/* Checks that the device exists and supports the precision before a context is created on it. */
static strait_err choose_device(struct strait_backend *be) {
    struct strait_cuda *cuda = strait_cuda_of(be);
    int n = 0;
    STRAIT_TRY(strait_cuda_check(be, cuda->driver->cuDeviceGetCount(&n), "counting devices"));
    if (be->ordinal < 0 || be->ordinal >= n)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "device cuda:%d does not exist, this machine has %d CUDA devices: set "
                           "device.ordinal below that, or device.kind to cpu",
                           be->ordinal, n);
    STRAIT_TRY(strait_cuda_check(be, cuda->driver->cuDeviceGet(&cuda->device, be->ordinal),
                                 "opening the device"));
    STRAIT_TRY(ask(be, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &cuda->major));
    STRAIT_TRY(ask(be, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &cuda->minor));
    STRAIT_TRY(ask(be, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &cuda->n_processors));
    if (be->precision == STRAIT_BF16 && cuda->major < BF16_MAJOR)
        return STRAIT_FAIL(
            STRAIT_ECONFIG,
            "device cuda:%d is sm_%d%d, which does not support bf16 (sm_80 and later do): "
            "set device.precision to fp32 or auto",
            be->ordinal, cuda->major, cuda->minor);
    if (be->has_fp8 && cuda->major < STRAIT_CUDA_FP8_MAJOR)
        return STRAIT_FAIL(
            STRAIT_ECONFIG,
            "device cuda:%d is sm_%d%d, which has no fp8 products (sm_90 and later have): "
            "set device.precision to bf16 or auto",
            be->ordinal, cuda->major, cuda->minor);
    return STRAIT_OK;
}

/* "NVIDIA H200, 139 GiB, sm_90, bf16, cudnn+group attention, CUDA 13.0" */
static strait_err write_description(struct strait_backend *be) {
    struct strait_cuda *cuda = strait_cuda_of(be);
    char name[96] = "";
    size_t bytes = 0;
    int version = 0;
    STRAIT_TRY(
        strait_cuda_check(be, cuda->driver->cuDeviceGetName(name, (int)sizeof name, cuda->device),
                          "reading its name"));
    STRAIT_TRY(strait_cuda_check(be, cuda->driver->cuDeviceTotalMem_v2(&bytes, cuda->device),
                                 "reading its memory size"));
    STRAIT_TRY(strait_cuda_check(be, cuda->driver->cuDriverGetVersion(&version),
                                 "reading the driver's version"));
    (void)snprintf(cuda->description, sizeof cuda->description,
                   "%s, %zu GiB, sm_%d%d, %s, %s attention, CUDA %d.%d", name, bytes >> 30,
                   cuda->major, cuda->minor,
                   be->precision != STRAIT_BF16 ? "fp32" : (be->has_fp8 ? "fp8" : "bf16"),
                   strait_cuda_attention_kind(be), version / 1000, version % 1000 / 10);
    return STRAIT_OK;
}

/* A device that cannot be asked counts as a current one: opening it will report what is wrong. */
static strait_dtype precision(int ordinal, const char **why) {
    const struct strait_cuda_driver *driver = NULL;
    CUdevice device = 0;
    int major = BF16_MAJOR;
    *why = NULL;
    if (strait_cuda_driver(&driver) != STRAIT_OK ||
        driver->cuDeviceGet(&device, ordinal) != CUDA_SUCCESS ||
        driver->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                     device) != CUDA_SUCCESS ||
        major >= BF16_MAJOR)
        return STRAIT_BF16;
    *why = "devices before sm_80 do not support bf16";
    return STRAIT_F32;
}

static int count(void) {
    const struct strait_cuda_driver *driver = NULL;
    int n = 0;
    if (strait_cuda_driver(&driver) != STRAIT_OK || driver->cuDeviceGetCount(&n) != CUDA_SUCCESS)
        return 0;
    return n;
}

/* The order is that of dependencies; fini accepts whatever was reached. */
static strait_err init(struct strait_backend *be) {
    struct strait_cuda *cuda = strait_cuda_of(be);
    STRAIT_TRY(strait_cuda_driver(&cuda->driver));
    STRAIT_TRY(choose_device(be));
    STRAIT_TRY(
        strait_cuda_check(be, cuda->driver->cuDevicePrimaryCtxRetain(&cuda->context, cuda->device),
                          "opening the device"));
    STRAIT_TRY(strait_cuda_use(be));
    STRAIT_TRY(strait_cuda_modules_load(be));
    STRAIT_TRY(strait_cuda_blas_open(be));
    STRAIT_TRY(strait_cuda_attention_open(be));
    STRAIT_TRY(write_description(be));
    strait_cuda_table(&cuda->kernels);
    if (cuda->major >= STRAIT_CUDA_FP8_MAJOR) strait_cuda_fp8(&cuda->kernels);
    strait_kernel_set_link(&cuda->kernels);
    be->kernels = &cuda->kernels.base;
    return STRAIT_OK;
}

/* Keeps the device's primary context for the life of the process: other backends and libraries may
 * use it, and creating it again takes a good part of a second. */
static void fini(struct strait_backend *be) {
    struct strait_cuda *cuda = strait_cuda_of(be);
    if (cuda->context == NULL) return;
    (void)cuda->driver->cuCtxSetCurrent(cuda->context);
    strait_cuda_attention_close(cuda);
    strait_cuda_blas_close(cuda);
    strait_cuda_modules_unload(cuda);
    cuda->context = NULL;
}

/* The size of an allocation, as the driver rounded it up. */
static size_t size_of(const struct strait_cuda *cuda, CUdeviceptr memory) {
    size_t bytes = 0;
    (void)cuda->driver->cuMemGetAddressRange_v2(NULL, &bytes, memory);
    return bytes;
}

/* Counts what the driver really took, for peak_bytes. */
strait_err strait_cuda_alloc(const struct strait_backend *be, size_t bytes, CUdeviceptr *out) {
    struct strait_cuda *cuda = strait_cuda_of(be);
    const CUresult result = cuda->driver->cuMemAlloc_v2(out, bytes > 0 ? bytes : 1);
    if (result == CUDA_SUCCESS) {
        cuda->used_bytes += size_of(cuda, *out);
        if (cuda->used_bytes > cuda->peak_bytes) cuda->peak_bytes = cuda->used_bytes;
        return STRAIT_OK;
    }
    if (result != CUDA_ERROR_OUT_OF_MEMORY)
        return strait_cuda_check(be, result, "allocating memory");
    size_t free_bytes = 0, all = 0;
    (void)cuda->driver->cuMemGetInfo_v2(&free_bytes, &all);
    return STRAIT_FAIL(STRAIT_ENOMEM,
                       "device cuda:%d: out of memory: an allocation of %zu MiB failed, %zu of %zu "
                       "MiB are free: use smaller microbatches, recomputation or more stages",
                       be->ordinal, bytes >> 20, free_bytes >> 20, all >> 20);
}

/* The size is asked of the driver, so that callers need not keep it. */
void strait_cuda_free(const struct strait_backend *be, CUdeviceptr memory) {
    struct strait_cuda *cuda = strait_cuda_of(be);
    if (memory == 0) return;
    cuda->used_bytes -= size_of(cuda, memory);
    (void)cuda->driver->cuMemFree_v2(memory);
}

static size_t peak_bytes(const struct strait_backend *be) {
    return strait_cuda_of(be)->peak_bytes;
}

/* Includes what other processes leave: several stages may share a device. */
static size_t free_bytes(const struct strait_backend *be) {
    size_t available = 0, all = 0;
    if (strait_cuda_use(be) != STRAIT_OK) return 0;
    (void)strait_cuda_of(be)->driver->cuMemGetInfo_v2(&available, &all);
    return available;
}

static strait_err alloc(struct strait_backend *be, size_t bytes, void **out) {
    const struct strait_cuda_driver *driver = strait_cuda_of(be)->driver;
    CUdeviceptr memory = 0;
    STRAIT_TRY(strait_alloc_admit("device memory", bytes));
    STRAIT_TRY(strait_cuda_use(be));
    STRAIT_TRY(strait_cuda_alloc(be, bytes, &memory));
    /* Streams of a backend are not ordered after the default stream, on which the memset runs: it
     * must be done before we return. */
    CUresult result = driver->cuMemsetD8Async(memory, 0, bytes > 0 ? bytes : 1, NULL);
    if (result == CUDA_SUCCESS) result = driver->cuStreamSynchronize(NULL);
    if (result != CUDA_SUCCESS) strait_cuda_free(be, memory);
    STRAIT_TRY(strait_cuda_check(be, result, "zeroing memory"));
    *out = strait_cuda_pointer(memory);
    return STRAIT_OK;
}

static void release(struct strait_backend *be, void *memory) {
    if (memory == NULL || strait_cuda_use(be) != STRAIT_OK) return;
    strait_cuda_free(be, (CUdeviceptr)(uintptr_t)memory);
}

/* Pinned for all contexts, since other threads copy from it, too. */
static strait_err alloc_host(struct strait_backend *be, size_t bytes, void **out) {
    void *memory = NULL;
    STRAIT_TRY(strait_alloc_admit("pinned memory", bytes));
    STRAIT_TRY(strait_cuda_use(be));
    const CUresult result = strait_cuda_of(be)->driver->cuMemHostAlloc(
        &memory, bytes > 0 ? bytes : 1, CU_MEMHOSTALLOC_PORTABLE);
    STRAIT_TRY(strait_cuda_check(be, result, "pinning host memory"));
    memset(memory, 0, bytes);
    *out = memory;
    return STRAIT_OK;
}

/* Memory of a context that is gone was freed with it. */
static void release_host(struct strait_backend *be, void *memory) {
    if (memory == NULL || strait_cuda_use(be) != STRAIT_OK) return;
    (void)strait_cuda_of(be)->driver->cuMemFreeHost(memory);
}

/* Also undoes a stream that was opened in part; queued work must end before its scratch is freed.
 */
static void stream_close(struct strait_stream *s) {
    struct strait_cuda_queue *queue = strait_cuda_queue_of(s);
    if (queue != NULL && strait_cuda_use(s->backend) == STRAIT_OK) {
        const struct strait_cuda_driver *driver = strait_cuda_of(s->backend)->driver;
        if (queue->stream != NULL) (void)driver->cuStreamSynchronize(queue->stream);
        strait_cuda_free(s->backend, queue->scratch);
        if (queue->event != NULL) (void)driver->cuEventDestroy_v2(queue->event);
        if (queue->stream != NULL) (void)driver->cuStreamDestroy_v2(queue->stream);
    }
    strait_alloc_free(queue);
    *s = (struct strait_stream){0};
}

/* Non-blocking streams do not wait for the default stream, on which libraries may work. */
static strait_err stream_open(struct strait_backend *be, struct strait_stream *s) {
    const struct strait_cuda_driver *driver = strait_cuda_of(be)->driver;
    struct strait_cuda_queue *queue = NULL;
    STRAIT_TRY(strait_cuda_use(be));
    STRAIT_TRY(strait_alloc(1, sizeof *queue, "stream", (void **)&queue));
    *s = (struct strait_stream){.backend = be, .native = queue};
    CUresult result = driver->cuStreamCreate(&queue->stream, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS)
        result = driver->cuEventCreate(&queue->event, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS) stream_close(s);
    return strait_cuda_check(be, result, "creating a stream");
}

strait_err strait_cuda_scratch(struct strait_stream *s, size_t bytes, void **out) {
    struct strait_cuda_queue *queue = strait_cuda_queue_of(s);
    if (bytes > queue->scratch_bytes || queue->scratch == 0) {
        /* Queued kernels may still use the old scratch: wait before it is freed. */
        const struct strait_cuda_driver *driver = strait_cuda_of(s->backend)->driver;
        const size_t want = bytes > STRAIT_CUDA_SCRATCH ? bytes : STRAIT_CUDA_SCRATCH;
        STRAIT_TRY(strait_cuda_use(s->backend));
        STRAIT_TRY(strait_cuda_check(s->backend, driver->cuStreamSynchronize(queue->stream),
                                     "waiting for a stream to grow its scratch"));
        strait_cuda_free(s->backend, queue->scratch);
        queue->scratch = 0;
        queue->scratch_bytes = 0;
        STRAIT_TRY(strait_cuda_alloc(s->backend, want, &queue->scratch));
        queue->scratch_bytes = want;
    }
    *out = strait_cuda_pointer(queue->scratch);
    return STRAIT_OK;
}

/* From pageable memory the driver waits for the stream, copies the data to a buffer of its own and
 * returns; only copies of pinned memory (alloc_host) are asynchronous. */
static strait_err upload(struct strait_stream *s, void *device, const void *host, size_t bytes) {
    CUstream stream = NULL;
    if (bytes == 0) return STRAIT_OK;
    STRAIT_TRY(strait_cuda_enter(s, &stream));
    const CUresult result = strait_cuda_of(s->backend)
                                ->driver->cuMemcpyHtoDAsync_v2((CUdeviceptr)(uintptr_t)device, host,
                                                               bytes, stream);
    return strait_cuda_check(s->backend, result, "copying to the device");
}

/* Only queued: the caller waits for an event before it reads. */
static strait_err download(struct strait_stream *s, void *host, const void *device, size_t bytes) {
    CUstream stream = NULL;
    if (bytes == 0) return STRAIT_OK;
    STRAIT_TRY(strait_cuda_enter(s, &stream));
    const CUresult result = strait_cuda_of(s->backend)
                                ->driver->cuMemcpyDtoHAsync_v2(host, (CUdeviceptr)(uintptr_t)device,
                                                               bytes, stream);
    return strait_cuda_check(s->backend, result, "copying from the device");
}

/* One event per stream is enough: recording it again does not affect waits already queued. */
static strait_err order(struct strait_stream *s, struct strait_stream *waiter) {
    const struct strait_cuda_driver *driver = strait_cuda_of(s->backend)->driver;
    const struct strait_cuda_queue *queue = strait_cuda_queue_of(s);
    STRAIT_TRY(strait_cuda_use(s->backend));
    CUresult result = driver->cuEventRecord(queue->event, queue->stream);
    if (result == CUDA_SUCCESS)
        result = driver->cuStreamWaitEvent(strait_cuda_queue_of(waiter)->stream, queue->event, 0);
    return strait_cuda_check(s->backend, result, "ordering streams");
}

static void event_close(struct strait_event *e) {
    if (e->native != NULL && strait_cuda_use(e->backend) == STRAIT_OK)
        (void)strait_cuda_of(e->backend)->driver->cuEventDestroy_v2(e->native);
    *e = (struct strait_event){0};
}

/* Events without timing are cheaper to record and to wait for. */
static strait_err event_open(struct strait_backend *be, struct strait_event *e) {
    CUevent event = NULL;
    STRAIT_TRY(strait_cuda_use(be));
    STRAIT_TRY(strait_cuda_check(
        be, strait_cuda_of(be)->driver->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING),
        "creating an event"));
    *e = (struct strait_event){.backend = be, .native = event};
    return STRAIT_OK;
}

static strait_err event_record(struct strait_stream *s, struct strait_event *e) {
    CUstream stream = NULL;
    STRAIT_TRY(strait_cuda_enter(s, &stream));
    return strait_cuda_check(s->backend,
                             strait_cuda_of(s->backend)->driver->cuEventRecord(e->native, stream),
                             "recording an event");
}

/* cuEventQuery reports work that is still running as an error of its own. */
static strait_err event_query(struct strait_event *e, int waits, int *is_reached) {
    const struct strait_cuda_driver *driver = strait_cuda_of(e->backend)->driver;
    STRAIT_TRY(strait_cuda_use(e->backend));
    const CUresult result = waits ? driver->cuEventSynchronize(e->native)
                                  : driver->cuEventQuery(e->native);
    *is_reached = result == CUDA_SUCCESS;
    if (result == CUDA_ERROR_NOT_READY) return STRAIT_OK;
    return strait_cuda_check(e->backend, result, "finishing queued work");
}

/* Errors of earlier kernels are reported here, since launches return before they run. */
static strait_err wait_idle(struct strait_stream *s) {
    CUstream stream = NULL;
    STRAIT_TRY(strait_cuda_enter(s, &stream));
    return strait_cuda_check(s->backend,
                             strait_cuda_of(s->backend)->driver->cuStreamSynchronize(stream),
                             "finishing queued work");
}

static const char *describe(const struct strait_backend *be) {
    return strait_cuda_of(be)->description;
}

extern const struct strait_backend_ops strait_backend_cuda;

const struct strait_backend_ops strait_backend_cuda = {
    .name = "cuda",
    .state_size = sizeof(struct strait_cuda),
    .stream_bytes = STRAIT_CUDA_SCRATCH,
    .query_bytes = 5, // reserve_once in attention.c: an integer, and three numbers per head
    .precision = precision,
    .count = count,
    .init = init,
    .fini = fini,
    .alloc = alloc,
    .release = release,
    .alloc_host = alloc_host,
    .release_host = release_host,
    .stream_open = stream_open,
    .stream_close = stream_close,
    .upload = upload,
    .download = download,
    .order = order,
    .event_open = event_open,
    .event_close = event_close,
    .event_record = event_record,
    .event_query = event_query,
    .wait = wait_idle,
    .peak_bytes = peak_bytes,
    .free_bytes = free_bytes,
    .describe = describe,
};
