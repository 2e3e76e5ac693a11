#include "rig.h"

#include "backend/cpu/cpu.h"
#include "base/alloc.h"
#include "base/rng.h"

#include <stdio.h>

enum {
    RIGS_MAX = 8
};

static struct rig reference, rigs[RIGS_MAX];
static int n_rigs;

static int can_open(const char *name) {
    struct strait_backend *be = NULL;
    const strait_err err = strait_backend_open((strait_backend_spec){.name = name}, &be);
    strait_backend_close(&be);
    const char *wanted = getenv("STRAIT_TEST_DEVICE"); // NOLINT(concurrency-mt-unsafe)
    if (err != STRAIT_ENOTSUP || (wanted != NULL && strcmp(wanted, name) == 0)) return 1;
    print_message("left out: %s\n", strait_err_detail());
    return 0;
}

int rig_is_here(int i) {
    static struct { int is_known, is_here; } answers[RIGS_MAX];
    CHECK(i < RIGS_MAX);
    if (!answers[i].is_known) answers[i].is_here = can_open(strait_backends[i]->name);
    answers[i].is_known = 1;
    return answers[i].is_here;
}

void rig_open(struct rig *rig, strait_backend_spec spec) {
    *rig = (struct rig){0};
    CHECK_OK(strait_backend_open(spec, &rig->be));
    CHECK_OK(rig->be->ops->stream_open(rig->be, &rig->stream));
    rig->k = rig->be->kernels;
}

void rig_clear(struct rig *rig) {
    while (rig->n_memory > 0)
        rig->be->ops->release(rig->be, rig->memory[--rig->n_memory]);
    rig->n_kept = 0;
}

void rig_close(struct rig *rig) {
    rig_clear(rig);
    free(rig->kept);
    if (rig->be != NULL) rig->be->ops->stream_close(&rig->stream);
    strait_backend_close(&rig->be);
    *rig = (struct rig){0};
}

static strait_tensor make(struct rig *rig, strait_dtype dtype, int64_t rows, int64_t cols,
                          const void *values) {
    strait_tensor t = {.dtype = dtype, .rows = rows, .cols = cols};
    const size_t bytes = strait_tensor_bytes(t);
    CHECK(rig->n_memory < RIG_TENSORS);
    CHECK_OK(rig->be->ops->alloc(rig->be, bytes, &t.data));
    rig->memory[rig->n_memory++] = t.data;
    CHECK_OK(rig->be->ops->upload(&rig->stream, t.data, values, bytes));
    CHECK_OK(rig->be->ops->wait(&rig->stream));
    return t;
}

static float *host_floats(int64_t n) {
    float *values = malloc((size_t)n * sizeof *values + 1);
    assert_non_null(values);
    return values;
}

strait_tensor rig_values(struct rig *rig, int64_t rows, int64_t cols, const float *values) {
    return make(rig, STRAIT_F32, rows, cols, values);
}

strait_tensor rig_input(struct rig *rig, int64_t rows, int64_t cols, int seed) {
    float *values = host_floats(rows * cols);
    const strait_rng rng = {.seed = (uint64_t)seed, .stream = strait_rng_stream("contract")};
    strait_rng_normals(rng, 0, values, (size_t)(rows * cols));
    const strait_tensor t = rig_values(rig, rows, cols, values);
    free(values);
    return t;
}

strait_tensor rig_output(struct rig *rig, int64_t rows, int64_t cols) {
    float *values = host_floats(rows * cols);
    for (int64_t i = 0; i < rows * cols; i++)
        values[i] = NAN;
    const strait_tensor t = rig_values(rig, rows, cols, values);
    free(values);
    return t;
}

strait_tensor rig_half_output(struct rig *rig, int64_t rows, int64_t cols) {
    strait_tensor t = rig_output(rig, rows, cols); // in bf16, half of it is used
    if (rig->be->precision == STRAIT_BF16) t.dtype = STRAIT_BF16;
    return t;
}

strait_tensor rig_half_input(struct rig *rig, int64_t rows, int64_t cols, int seed) {
    const strait_tensor exact = rig_input(rig, rows, cols, seed);
    strait_tensor half = rig_output(rig, rows, cols);
    half.dtype = STRAIT_BF16;
    CHECK_OK(rig->k->cast(&rig->stream, half, exact));
    if (rig->be->precision == STRAIT_BF16) return half;
    CHECK_OK(rig->k->cast(&rig->stream, exact, half));
    return exact;
}

strait_tensor rig_ints(struct rig *rig, int64_t rows, const int32_t *values) {
    return make(rig, STRAIT_I32, rows, 1, values);
}

strait_tensor rig_tokens(struct rig *rig, int64_t rows, int64_t below, int seed) {
    int32_t *values = malloc((size_t)rows * sizeof *values);
    assert_non_null(values);
    const strait_rng rng = {.seed = (uint64_t)seed, .stream = strait_rng_stream("tokens")};
    for (int64_t i = 0; i < rows; i++)
        values[i] = (int32_t)(strait_rng_u64(rng, (uint64_t)i) % (uint64_t)below);
    const strait_tensor t = rig_ints(rig, rows, values);
    free(values);
    return t;
}

void rig_angles(struct rig *rig, strait_heads heads, strait_tensor *cos_out,
                strait_tensor *sin_out) {
    const int half = heads.head_dim / 2;
    float *c = host_floats(heads.seq_len * half), *s = host_floats(heads.seq_len * half);
    for (int64_t i = 0; i < heads.seq_len * half; i++) {
        const int64_t place = i / half;
        const double angle = (double)place * pow(100, -(double)(i % half) / half);
        c[i] = (float)cos(angle);
        s[i] = (float)sin(angle);
    }
    *cos_out = rig_values(rig, heads.seq_len, half, c);
    *sin_out = rig_values(rig, heads.seq_len, half, s);
    free(c);
    free(s);
}

void rig_read(struct rig *rig, strait_tensor t, float *out) {
    CHECK_OK(rig->be->ops->download(&rig->stream, out, t.data, strait_tensor_bytes(t)));
    CHECK_OK(rig->be->ops->wait(&rig->stream));
}

void rig_write(struct rig *rig, strait_tensor t, const float *values) {
    CHECK_OK(rig->be->ops->upload(&rig->stream, t.data, values, strait_tensor_bytes(t)));
    CHECK_OK(rig->be->ops->wait(&rig->stream));
}

static strait_tensor as_f32(struct rig *rig, strait_tensor t) {
    const strait_tensor wide = rig_output(rig, t.rows, t.cols);
    CHECK_OK(rig->k->cast(&rig->stream, wide, t));
    return wide;
}

void rig_keep(struct rig *rig, strait_tensor t) {
    if (t.dtype == STRAIT_BF16) t = as_f32(rig, t);
    const size_t n = strait_tensor_bytes(t) / sizeof(float);
    if (rig->n_kept + n > rig->n_room) {
        rig->n_room = 2 * (rig->n_kept + n);
        rig->kept = realloc(rig->kept, rig->n_room * sizeof(float));
        assert_non_null(rig->kept);
    }
    rig_read(rig, t, rig->kept + rig->n_kept);
    rig->n_kept += n;
}

static void describe_shape(char out[160], shape s) {
    (void)snprintf(out, 160,
                   "rows %d cols %d inner %d heads %d/%d of %d, sequences of %d, variant %d",
                   (int)s.rows, (int)s.cols, (int)s.inner, s.heads.n_query, s.heads.n_key,
                   s.heads.head_dim, (int)s.heads.seq_len, s.variant);
}

static void check_near(const struct rig *rig, shape s, double tolerance) {
    double squares = 0;
    for (size_t i = 0; i < reference.n_kept; i++)
        if (isfinite(reference.kept[i]))
            squares += (double)reference.kept[i] * (double)reference.kept[i];
    const double size = sqrt(squares / (double)reference.n_kept);
    for (size_t i = 0; i < reference.n_kept; i++) {
        const double want = (double)reference.kept[i], got = (double)rig->kept[i];
        const int is_near = isfinite(want) ? fabs(got - want) <= tolerance * (fabs(want) + size)
                                           : (isnan(want) ? isnan(got) : got == want); // NOLINT
        if (is_near) continue;
        char text[160];
        describe_shape(text, s);
        fail_msg("%s (%s): value %zu is %.9g, the plain loops say %.9g",
                 rig->be->ops->describe(rig->be), text, i, got, want);
    }
}

static void run_once(struct rig *rig, rig_case run, shape s) {
    rig_clear(rig);
    run(rig, s);
}

static float *copy_kept(const struct rig *rig) {
    float *copy = host_floats((int64_t)rig->n_kept);
    memcpy(copy, rig->kept, rig->n_kept * sizeof *copy);
    return copy;
}

/* The same bits as before: of the same rig, or of the same kernels on fewer threads. */
static void check_bits(const struct rig *rig, const float *before, shape s) {
    if (before != NULL && memcmp(before, rig->kept, rig->n_kept * sizeof *before) == 0) return;
    char text[160];
    describe_shape(text, s);
    fail_msg("%s (%s): other bits than before", rig->be->ops->describe(rig->be), text);
}

void check_case(rig_case run, shape s, double tolerance) {
    run_once(&reference, run, s);
    CHECK(reference.n_kept > 0);
    float *before = NULL;
    for (int i = 0; i < n_rigs; i++) {
        struct rig *rig = &rigs[i];
        const int64_t n_allocations = strait_alloc_count();
        run_once(rig, run, s);
        assert_int_equal(strait_alloc_count() - n_allocations, rig->n_memory);
        assert_int_equal(rig->n_kept, reference.n_kept);
        check_near(rig, s, tolerance);
        if (rig->is_alone) {
            free(before);
            before = copy_kept(rig);
            run_once(rig, run, s);
        }
        check_bits(rig, before, s);
    }
    free(before);
    for (int i = 0; i < n_rigs; i++)
        rig_clear(&rigs[i]);
    rig_clear(&reference);
}

struct rig *reference_rig(void) {
    rig_clear(&reference);
    return &reference;
}

int open_half_rigs(void **state) {
    (void)state;
    rig_open(&reference, (strait_backend_spec){.name = "cpu", .n_threads = 1, .is_reference = 1});
    for (int i = 0; strait_backends[i] != NULL; i++) {
        const strait_backend_spec spec = {.name = strait_backends[i]->name,
                                          .precision = STRAIT_BF16};
        struct strait_backend *be = NULL;
        if (!rig_is_here(i) || strait_backend_open(spec, &be) == STRAIT_ECONFIG) continue;
        strait_backend_close(&be);
        rig_open(&rigs[n_rigs], spec);
        rigs[n_rigs++].is_alone = 1;
    }
    return 0;
}

static struct rig *open_next(const char *name, int n_threads) {
    CHECK(n_rigs < RIGS_MAX);
    rig_open(&rigs[n_rigs], (strait_backend_spec){.name = name, .n_threads = n_threads});
    return &rigs[n_rigs++];
}

/* The kernels of every older instruction set that this processor has, too. */
static void open_older_isas(void) {
    for (const struct strait_isa *isa = strait_isas; isa->name != NULL; isa++) {
        if (!isa->is_here() || isa[1].name == NULL) continue;
        struct rig *rig = open_next("cpu", 2);
        struct strait_cpu *cpu = rig->be->state;
        isa->fill(&cpu->kernels);
        (void)snprintf(cpu->description, sizeof cpu->description, "2 threads, %s", isa->name);
        rig->is_alone = 1;
    }
}

int open_rigs(void **state) {
    (void)state;
    rig_open(&reference, (strait_backend_spec){.name = "cpu", .n_threads = 1, .is_reference = 1});
    open_older_isas();
    for (int i = 0; strait_backends[i] != NULL; i++) {
        if (!rig_is_here(i)) continue;
        const int is_cpu = strcmp(strait_backends[i]->name, "cpu") == 0;
        for (int threads = 1; threads <= (is_cpu ? 3 : 1); threads++)
            open_next(strait_backends[i]->name, threads)->is_alone = threads == 1;
    }
    return 0;
}

int close_rigs(void **state) {
    (void)state;
    while (n_rigs > 0)
        rig_close(&rigs[--n_rigs]);
    rig_close(&reference);
    return 0;
}

/* The loss as the inputs stand now. */
static double loss_of(const gradient *g) {
    double loss = 0;
    g->forward(g->rig, g->arg);
    for (size_t o = 0; o < COUNT(g->outputs); o++) {
        const int64_t n = g->outputs[o].rows * g->outputs[o].cols;
        if (g->outputs[o].data == NULL) continue;
        float *y = host_floats(n), *d_y = host_floats(n);
        rig_read(g->rig, g->outputs[o], y);
        rig_read(g->rig, g->d_outputs[o], d_y);
        for (int64_t i = 0; i < n; i++)
            loss += (double)y[i] * (double)d_y[i];
        free(y);
        free(d_y);
    }
    return loss;
}

static double loss_at(const gradient *g, strait_tensor x, float *values, int64_t i, float by) {
    const float saved = values[i];
    values[i] = saved + by;
    rig_write(g->rig, x, values);
    const double loss = loss_of(g);
    values[i] = saved;
    rig_write(g->rig, x, values);
    return loss;
}

void check_gradient(const gradient *g, strait_tensor x, strait_tensor d_x, const char *what) {
    const int64_t n = x.rows * x.cols, step = n > 60 ? n / 60 : 1;
    const float h = 0x1p-7f; // fourth-order differences: wide enough for f32
    float *values = host_floats(n), *made = host_floats(n);
    rig_read(g->rig, x, values);
    rig_read(g->rig, d_x, made);
    double apart = 0, size = 0;
    for (int64_t i = 0; i < n; i += step) {
        const double near = loss_at(g, x, values, i, h) - loss_at(g, x, values, i, -h);
        const double far = loss_at(g, x, values, i, 2 * h) - loss_at(g, x, values, i, -2 * h);
        const double slope = (8 * near - far) / (12 * (double)h);
        apart += (slope - (double)made[i]) * (slope - (double)made[i]);
        size += slope * slope;
    }
    free(values);
    free(made);
    if (!(size > 0)) fail_msg("%s: the loss does not depend on it", what);
    if (!(sqrt(apart) <= 1e-3 * sqrt(size)))
        fail_msg("%s: gradient is off by %.3g of its norm", what, sqrt(apart / size));
}
