/* cpu.c - the host as a device: device memory is host memory, and a kernel's work is done when its
 * call returns, so streams and events have nothing to wait for. */
#include "backend/cpu/cpu.h"

#include "backend/cpu/bf16_product.h"
#include "base/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct strait_cpu *state_of(const struct strait_backend *be) {
    return be->state;
}

/* Fills every entry with the reference loops; faster ones then replace some of them. */
static void take_reference(struct strait_kernel_set *set) {
    strait_ref_elementwise(set);
    strait_ref_matmul(set);
    strait_ref_embed(set);
    strait_ref_norm(set);
    strait_ref_rotate(set);
    strait_ref_attention(set);
    strait_ref_mlp(set);
    strait_ref_loss(set);
    strait_ref_sample(set);
    strait_ref_optim(set);
    strait_ref_payload(set);
    strait_ref_codec(set);
    strait_ref_conv(set);
    strait_ref_columns(set);
    strait_ref_log_scale(set);
    strait_ref_autoencoder(set);
    strait_ref_fp8(set);
    strait_ref_groups(set);
    strait_ref_norm_conv(set);
    strait_ref_conv_rotate(set);
    strait_ref_token_table(set);
}

/* The fastest instructions that may be used, by the environment; NULL: any. */
static const char *kernel_limit(void) {
    return getenv("STRAIT_CPU_KERNELS"); // NOLINT(concurrency-mt-unsafe) never changed
}

static int is_limit(const char *name) {
    return kernel_limit() != NULL && strcmp(kernel_limit(), name) == 0;
}

/* Whether the limit names an instruction set, which has no bf16 instructions then. */
static int limit_is_isa(void) {
    for (const struct strait_isa *isa = strait_isas; isa->name != NULL; isa++)
        if (is_limit(isa->name)) return 1;
    return 0;
}

static strait_err check_limit(void) {
    if (kernel_limit() == NULL || limit_is_isa()) return STRAIT_OK;
    for (const struct strait_bf16_units *units = strait_bf16_units; units->name != NULL; units++)
        if (is_limit(units->name)) return STRAIT_OK;
    return STRAIT_FAIL(STRAIT_ECONFIG, "STRAIT_CPU_KERNELS=%s: this program has no such kernels",
                       kernel_limit());
}

/* The last supported instruction set in the list is the fastest; NULL where none is supported. */
static const struct strait_isa *best_isa(void) {
    const struct strait_isa *best = NULL;
    for (const struct strait_isa *isa = strait_isas; isa->name != NULL; isa++) {
        if (isa->is_supported()) best = isa;
        if (is_limit(isa->name)) break;
    }
    return best;
}

/* The fastest bf16 instructions of this processor; NULL where it has none. */
static const struct strait_bf16_units *best_units(void) {
    const struct strait_bf16_units *best = NULL;
    if (limit_is_isa()) return NULL;
    for (const struct strait_bf16_units *units = strait_bf16_units; units->name != NULL; units++) {
        if (units->is_supported()) best = units;
        if (is_limit(units->name)) break;
    }
    return best;
}

static void name_kernels(strait_dtype precision, char *out, size_t capacity) {
    const struct strait_isa *isa = best_isa();
    const struct strait_bf16_units *units = precision == STRAIT_BF16 ? best_units() : NULL;
    const char *note = strait_bf16_note();
    const int is_half = precision == STRAIT_BF16;
    (void)snprintf(out, capacity, "%s%s%s%s%s", isa != NULL ? isa->name : "reference loops",
                   is_half ? ", bf16 products: " : "",
                   units != NULL ? units->name
                   : is_half     ? "converted to f32"
                                 : "",
                   is_half && note != NULL ? "; " : "", is_half && note != NULL ? note : "");
}

static void describe_device(struct strait_backend *be) {
    struct strait_cpu *cpu = state_of(be);
    char kernels[STRAIT_BACKEND_KERNELS] = "reference loops";
    if (!be->is_reference) name_kernels(be->precision, kernels, sizeof kernels);
    (void)snprintf(cpu->description, sizeof cpu->description, "%d thread%s, %s", be->n_threads,
                   be->n_threads == 1 ? "" : "s", kernels);
}

/* Only the fast kernels need packed panels and scratch. fini frees them, also after an error. */
static strait_err take_memory(struct strait_backend *be) {
    struct strait_cpu *cpu = state_of(be);
    const int is_half = be->precision == STRAIT_BF16;
    cpu->thread_floats = STRAIT_CPU_SCRATCH + (is_half ? STRAIT_CPU_HALF_SCRATCH : 0);
    STRAIT_TRY(strait_alloc_unset(STRAIT_CPU_LEFT, sizeof *cpu->left, "packed matrices",
                                  (void **)&cpu->left));
    STRAIT_TRY(strait_alloc_unset(STRAIT_CPU_RIGHT, sizeof *cpu->right, "packed matrices",
                                  (void **)&cpu->right));
    if (is_half)
        STRAIT_TRY(strait_alloc_unset(STRAIT_CPU_SUMS, sizeof *cpu->sums, "sums of products",
                                      (void **)&cpu->sums));
    return strait_alloc_unset((size_t)be->n_threads * (size_t)cpu->thread_floats,
                              sizeof *cpu->scratch, "scratch of threads", (void **)&cpu->scratch);
}

/* A device for bf16 has kernels of both types: weights and their updates stay f32. */
static void take_both_types(struct strait_cpu *cpu, const struct strait_isa *isa) {
    cpu->f32 = cpu->half = cpu->kernels;
    isa->fill(&cpu->f32);
    isa->fill_half(&cpu->half);
    isa->fill(&cpu->kernels);
    strait_cpu_by_type(&cpu->kernels);
    cpu->units = best_units();
}

static strait_err init(struct strait_backend *be) {
    struct strait_cpu *cpu = state_of(be);
    if (be->ordinal != 0)
        return STRAIT_FAIL(STRAIT_ECONFIG, "device cpu:%d does not exist: use cpu:0", be->ordinal);
    if (be->precision != STRAIT_F32 && be->precision != STRAIT_BF16)
        return STRAIT_FAIL(STRAIT_ECONFIG, "device cpu computes in fp32 or bf16");
    if (be->has_fp8)
        return STRAIT_FAIL(STRAIT_ECONFIG,
                           "device cpu has no fp8 products (GPUs of sm_90 and later "
                           "do): set device.precision to bf16, fp32 or auto");
    if (be->precision == STRAIT_BF16 && be->is_reference)
        return STRAIT_FAIL(STRAIT_ECONFIG, "the reference loops of device cpu compute in fp32");
    STRAIT_TRY(check_limit());
    STRAIT_TRY(strait_pool_open(be->n_threads, &cpu->pool));
    be->n_threads = strait_pool_threads(cpu->pool);
    take_reference(&cpu->kernels);
    const struct strait_isa *isa = be->is_reference ? NULL : best_isa();
    if (isa != NULL && be->precision == STRAIT_BF16)
        take_both_types(cpu, isa);
    else if (isa != NULL)
        isa->fill(&cpu->kernels);
    strait_kernel_set_link(&cpu->kernels);
    be->kernels = &cpu->kernels.base;
    describe_device(be);
    return isa != NULL ? take_memory(be) : STRAIT_OK;
}

/* Accepts whatever a failed init left: closing NULL does nothing. */
static void fini(struct strait_backend *be) {
    struct strait_cpu *cpu = state_of(be);
    strait_pool_close(&cpu->pool);
    strait_alloc_free(cpu->left);
    strait_alloc_free(cpu->right);
    strait_alloc_free(cpu->sums);
    strait_alloc_free(cpu->scratch);
}

/* Zeroed, as every backend promises. */
static strait_err alloc(struct strait_backend *be, size_t bytes, void **out) {
    (void)be;
    return strait_alloc(bytes, 1, "tensors", out);
}

static void release(struct strait_backend *be, void *memory) {
    (void)be;
    strait_alloc_free(memory);
}

/* Streams hold no state here: they only carry the backend. */
static strait_err stream_open(struct strait_backend *be, struct strait_stream *s) {
    *s = (struct strait_stream){.backend = be};
    return STRAIT_OK;
}

static void stream_close(struct strait_stream *s) {
    *s = (struct strait_stream){0};
}

/* Device memory is host memory, so this is a plain copy that is done when it returns. */
static strait_err upload(struct strait_stream *s, void *device, const void *host, size_t bytes) {
    (void)s;
    if (bytes > 0) memcpy(device, host, bytes);
    return STRAIT_OK;
}

static strait_err download(struct strait_stream *s, void *host, const void *device, size_t bytes) {
    return upload(s, host, device, bytes);
}

/* Streams are always idle: there is nothing to order or to wait for. */
static strait_err order(struct strait_stream *s, struct strait_stream *waiter) {
    (void)s;
    (void)waiter;
    return STRAIT_OK;
}

/* Kernels have finished when they return. */
static strait_err wait_idle(struct strait_stream *s) {
    (void)s;
    return STRAIT_OK;
}

static strait_err event_open(struct strait_backend *be, struct strait_event *e) {
    *e = (struct strait_event){.backend = be};
    return STRAIT_OK;
}

static void event_close(struct strait_event *e) {
    *e = (struct strait_event){0};
}

static strait_err event_record(struct strait_stream *s, struct strait_event *e) {
    (void)s;
    (void)e;
    return STRAIT_OK;
}

/* Reached as soon as it is recorded. */
static strait_err event_query(struct strait_event *e, int waits, int *is_reached) {
    (void)e;
    (void)waits;
    *is_reached = 1;
    return STRAIT_OK;
}

static const char *describe(const struct strait_backend *be) {
    return state_of(be)->description;
}

extern const struct strait_backend_ops strait_backend_cpu;

const struct strait_backend_ops strait_backend_cpu = {
    .name = "cpu",
    .is_host = 1,
    .state_size = sizeof(struct strait_cpu),
    .name_kernels = name_kernels,
    .init = init,
    .fini = fini,
    .alloc = alloc,
    .release = release,
    .alloc_host = alloc, // host memory needs no pinning
    .release_host = release,
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
    .describe = describe,
};
