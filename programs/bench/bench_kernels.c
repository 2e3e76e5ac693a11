/* bench_kernels.c - strait bench kernels: times every kernel alone, with the shapes of a model. */
#include "bench.h"

#include <stdio.h>
#include <string.h>

enum {
    COPY_BYTES = 1 << 28, // larger than the caches of a GPU; less suffices on the host
    HOST_BYTES = 1 << 26,
    SQUARE = 8192, // side of the matrices whose product measures the best speed
    HOST_SQUARE = 768
};

/* A copy moves as many bytes as the device can, so it shows the best bandwidth. */
static strait_err copy(struct strait_lab *lab, void *arg) {
    (void)arg;
    return lab->k->cast(&lab->stream, lab->t[0], lab->t[1]);
}

/* A large square product is limited by arithmetic alone. */
static strait_err square(struct strait_lab *lab, void *arg) {
    (void)arg;
    return lab->k->matmul(&lab->stream, lab->t[0], lab->t[1], lab->t[2],
                          (strait_matmul_params){.alpha = 1, .transpose_b = 1});
}

/* Allocates n tensors of this size, each moved once per call. */
static strait_err make_alike(struct strait_lab *lab, int n, strait_dtype dtype, int64_t rows,
                             int64_t cols) {
    for (; lab->n < n; lab->n++) {
        lab->bytes += (double)(rows * cols) * (double)strait_dtype_bytes(dtype);
        STRAIT_TRY(strait_slab_add(&lab->slab, dtype, rows, cols, &lab->t[lab->n]));
    }
    return strait_lab_make(lab);
}

static const char *type_of(const struct strait_lab *lab) {
    return lab->dtype == STRAIT_BF16 ? "bf16" : "f32";
}

/* Measures the best speeds of the device, which the other lines are compared with. */
static strait_err find_floor(struct strait_lab *lab) {
    const int is_host = lab->backend->ops->is_host;
    const int64_t side = is_host ? HOST_SQUARE : SQUARE;
    strait_lab_time time;
    STRAIT_TRY(make_alike(lab, 2, STRAIT_F32, 1, (is_host ? HOST_BYTES : COPY_BYTES) / 4));
    STRAIT_TRY(strait_lab_measure(lab, copy, NULL, &time));
    lab->copy_gb_s = lab->bytes / time.median_s / 1e9;
    strait_lab_clear(lab);
    STRAIT_TRY(make_alike(lab, 3, lab->dtype, side, side));
    STRAIT_TRY(strait_lab_measure(lab, square, NULL, &time));
    lab->tflop_s = 2.0 * (double)(side * side * side) / time.median_s / 1e12;
    strait_lab_clear(lab);
    printf("{\"bench\": \"device\", \"device\": \"%s: %s\", \"type\": \"%s\", \"gb_per_s\": %.1f, "
           "\"tflop_per_s\": %.4f, \"rows\": %lld, \"width\": %d}\n",
           lab->backend->ops->name, lab->backend->ops->describe(lab->backend), type_of(lab),
           lab->copy_gb_s, lab->tflop_s, (long long)lab->rows, lab->plan.shape.width);
    return STRAIT_OK;
}

/* The floor is the larger of the times for moving and for computing at the best speeds. */
static void print_line(const struct strait_lab *lab, const char *name,
                       const strait_lab_time *time) {
    const double moving = lab->bytes / (lab->copy_gb_s * 1e9);
    const double computing = lab->flops / (lab->tflop_s * 1e12);
    const double floor_s = moving > computing ? moving : computing;
    printf("{\"bench\": \"kernel\", \"kernel\": \"%s\", \"us\": %.3f, \"least_us\": %.3f, "
           "\"most_us\": %.3f, \"bytes\": %.0f, \"flop\": %.0f, \"gb_per_s\": %.1f, "
           "\"tflop_per_s\": %.4f, \"floor_us\": %.3f, \"of_floor\": %.3f}\n",
           name, time->median_s * 1e6, time->least_s * 1e6, time->most_s * 1e6, lab->bytes,
           lab->flops, lab->bytes / time->median_s / 1e9, lab->flops / time->median_s / 1e12,
           floor_s * 1e6, floor_s / time->median_s);
    (void)fflush(stdout);
}

static int is_wanted(const strait_lab_kernel *kernel, const char *only) {
    return only == NULL || strstr(kernel->name, only) != NULL;
}

static int count_wanted(const strait_lab_kernel *family, const char *only) {
    int n = 0;
    for (const strait_lab_kernel *kernel = family; kernel->name != NULL; kernel++)
        n += is_wanted(kernel, only);
    return n;
}

/* Tensors are allocated per kernel: those of all kernels would not fit into memory. */
static strait_err run_family(struct strait_lab *lab, const strait_lab_kernel *family,
                             const char *only) {
    for (const strait_lab_kernel *kernel = family; kernel->name != NULL; kernel++) {
        strait_lab_time time;
        if (!is_wanted(kernel, only)) continue;
        STRAIT_TRY(strait_lab_plan(lab, kernel->tensors));
        if (kernel->flops != NULL) lab->flops = kernel->flops(lab);
        STRAIT_TRY(strait_lab_make(lab));
        STRAIT_TRY(strait_lab_measure(lab, kernel->call, NULL, &time));
        print_line(lab, kernel->name, &time);
        strait_lab_clear(lab);
    }
    return STRAIT_OK;
}

static strait_err run_all(struct strait_lab *lab, const char *only) {
    if (count_wanted(strait_lab_layers, only) + count_wanted(strait_lab_codecs, only) == 0)
        return STRAIT_FAIL(STRAIT_ECONFIG, "--only '%s': no kernel has that in its name", only);
    STRAIT_TRY(find_floor(lab));
    STRAIT_TRY(run_family(lab, strait_lab_layers, only));
    return run_family(lab, strait_lab_codecs, only);
}

strait_err strait_bench_kernels(const strait_run *run, int repeats, const char *only) {
    static struct strait_lab lab; // large, and there is one
    strait_err err = strait_lab_open(&lab, run, repeats);
    if (err == STRAIT_OK) err = run_all(&lab, only);
    strait_lab_close(&lab);
    return err;
}
