#include "rig.h"

#include "backend/cpu/bf16_product.h"
#include "backend/cpu/cpu.h"
#include "base/alloc.h"

#include <stdio.h>

#ifndef FEWEST_THREADS
    #define FEWEST_THREADS 1 // of the cpu rigs
#endif

enum {
    RIGS_MAX = 20,
    QUICK_STRIDE = 7 // coprime to the length of every list of sizes
};

static const double bf16_tolerance = 2e-2;

static struct rig reference, rigs[RIGS_MAX], *under_test;
static int n_rigs;

static int can_open(const char *name, strait_dtype precision, strait_err unless) {
    struct strait_backend *be = NULL;
    const strait_err err = strait_backend_open(
        (strait_backend_spec){.name = name, .precision = precision}, &be);
    strait_backend_close(&be);
    const char *wanted = getenv("STRAIT_TEST_DEVICE"); // NOLINT(concurrency-mt-unsafe)
    const int is_wanted = wanted != NULL && strcmp(wanted, name) == 0;
    if (err != unless || (is_wanted && precision == STRAIT_F32)) return 1;
    print_message("left out: %s\n", strait_err_detail());
    return 0;
}

int rig_is_available(int i) {
    static struct { int is_known, is_available; } answers[RIGS_MAX];
    CHECK(i < RIGS_MAX);
    if (!answers[i].is_known)
        answers[i].is_available = can_open(strait_backends[i]->name, STRAIT_F32, STRAIT_ENOTSUP);
    answers[i].is_known = 1;
    return answers[i].is_available;
}

int rig_is_quick(void) {
    const char *quick = getenv("STRAIT_TEST_QUICK"); // NOLINT(concurrency-mt-unsafe)
    return quick != NULL && strcmp(quick, "1") == 0;
}

void rig_open(struct rig *rig, strait_backend_spec spec) {
    *rig = (struct rig){0};
    CHECK_OK(strait_backend_open(spec, &rig->be));
    CHECK_OK(rig->be->ops->stream_open(rig->be, &rig->stream));
    rig->k = rig->be->kernels;
    rig_guard(rig);
    rig_clear(rig);
}

void rig_clear(struct rig *rig) {
    while (rig->n_memory > 0)
        rig->be->ops->release(rig->be, rig->memory[--rig->n_memory]);
    rig->n_kept = 0;
    rig->n_ends = 0;
    rig->n_acts = 0;
    rig_check(rig);
    rig->n_taken = 0;
    (void)snprintf(rig->about, sizeof rig->about, "the test's only case");
}

float *rig_results(struct rig *rig, rig_case run, shape s, size_t *n) {
    rig_clear(rig);
    run(rig, s);
    *n = rig->n_kept;
    float *copy = rig_floats((int64_t)rig->n_kept);
    memcpy(copy, rig->kept, rig->n_kept * sizeof *copy);
    return copy;
}

void rig_close(struct rig *rig) {
    rig_clear(rig);
    rig_unguard(rig);
    free(rig->kept);
    if (rig->be != NULL) rig->be->ops->stream_close(&rig->stream);
    strait_backend_close(&rig->be);
    *rig = (struct rig){0};
}

static void describe_shape(char out[160], shape s) {
    (void)snprintf(out, 160,
                   "rows %d cols %d inner %d heads %d/%d of %d, sequences of %d, variant %d",
                   (int)s.rows, (int)s.cols, (int)s.inner, s.heads.n_query, s.heads.n_key,
                   s.heads.head_dim, (int)s.heads.seq_len, s.variant);
}

/* The root mean square of the reference outputs [first, end). */
static double size_of(size_t first, size_t end) {
    double squares = 0;
    for (size_t i = first; i < end; i++)
        if (isfinite(reference.kept[i]))
            squares += (double)reference.kept[i] * (double)reference.kept[i];
    return end > first ? sqrt(squares / (double)(end - first)) : 0;
}

static int is_near(double got, double want, double size, double tolerance) {
    if (isfinite(want)) return fabs(got - want) <= tolerance * (fabs(want) + size);
    return isnan(want) ? isnan(got) : got == want; // NOLINT
}

/* Prints how far one kept tensor is from the reference loops, if any of its values is too far. */
static int report_difference(const struct rig *rig, int part, double size, double tolerance) {
    const size_t begin = part > 0 ? reference.ends[part - 1] : 0, end = reference.ends[part];
    size_t n_wrong = 0, first = 0, worst = 0;
    double most = -1;
    for (size_t i = begin; i < end; i++) {
        const double want = (double)reference.kept[i], got = (double)rig->kept[i];
        if (is_near(got, want, size, tolerance)) continue;
        if (n_wrong++ == 0) first = i;
        if (!(fabs(got - want) > most)) continue;
        most = fabs(got - want);
        worst = i;
    }
    if (n_wrong == 0) return 0;
    print_message("%s: %zu of %zu values of tensor %d (rms %.3g) are too far from the reference "
                  "loops: value %zu is %.9g, expected %.9g; value %zu is %.9g, expected %.9g\n",
                  rig->be->ops->describe(rig->be), n_wrong, end - begin, part, size, first - begin,
                  (double)rig->kept[first], (double)reference.kept[first], worst - begin,
                  (double)rig->kept[worst], (double)reference.kept[worst]);
    return 1;
}

static void check_near(const struct rig *rig, shape s, double tolerance) {
    const double all = size_of(0, reference.n_kept);
    int n_wrong = 0;
    for (int part = 0; part < reference.n_ends; part++) {
        const double own = size_of(part > 0 ? reference.ends[part - 1] : 0, reference.ends[part]);
        n_wrong += report_difference(rig, part, own > all ? own : all, tolerance);
    }
    if (n_wrong == 0) return;
    char text[160];
    describe_shape(text, s);
    fail_msg("%s (%s): %d of %d tensors differ from the reference loops",
             rig->be->ops->describe(rig->be), text, n_wrong, reference.n_ends);
}

static void run_once(struct rig *rig, rig_case run, shape s) {
    rig_clear(rig);
    describe_shape(rig->about, s);
    run(rig, s);
    rig_check(rig);
}

static float *copy_kept(const struct rig *rig) {
    float *copy = rig_floats((int64_t)rig->n_kept);
    memcpy(copy, rig->kept, rig->n_kept * sizeof *copy);
    return copy;
}

/* Checks for the same bits as before: of the same rig, or of the same kernels on fewer threads. */
static void check_bits(const struct rig *rig, const float *prev, shape s) {
    if (prev != NULL && memcmp(prev, rig->kept, rig->n_kept * sizeof *prev) == 0) return;
    char text[160];
    describe_shape(text, s);
    fail_msg("%s (%s): bits differ from the previous run", rig->be->ops->describe(rig->be), text);
}

/* Runs the case once. A kernel must not allocate, except when a device sees a shape for the first
 * time. */
static void run_counted(struct rig *rig, rig_case run, shape s, int is_first) {
    const int64_t n_allocations = strait_alloc_count();
    run_once(rig, run, s);
    if (rig->be->ops->is_host || !is_first)
        assert_int_equal(strait_alloc_count() - n_allocations, rig->n_memory);
    assert_int_equal(rig->n_kept, reference.n_kept);
}

static void check_rigs(rig_case run, shape s, strait_dtype precision, double tolerance) {
    float *prev = NULL;
    reference.is_rounding = precision == STRAIT_BF16;
    run_once(&reference, run, s);
    CHECK(reference.n_kept > 0);
    for (int i = 0; i < n_rigs; i++) {
        struct rig *rig = &rigs[i];
        if (rig->be->precision != precision) continue;
        run_counted(rig, run, s, 1);
        check_near(rig, s, tolerance);
        if (rig->is_alone) {
            free(prev);
            prev = copy_kept(rig);
            if (!rig_is_quick()) run_counted(rig, run, s, 0);
        }
        check_bits(rig, prev, s);
        rig_clear(rig);
    }
    free(prev);
    reference.is_rounding = 0;
}

static int count_rigs(strait_dtype precision) {
    int n = 0;
    for (int i = 0; i < n_rigs; i++)
        n += rigs[i].be->precision == precision;
    return n;
}

void check_case(rig_case run, shape s, double tolerance) {
    check_rigs(run, s, STRAIT_F32, tolerance);
    const int is_half_only = count_rigs(STRAIT_F32) == 0;
    const double least = s.in_bf16 > 0 ? s.in_bf16 : bf16_tolerance;
    const double near = tolerance > least || is_half_only ? tolerance : least;
    const int is_asked = is_half_only || (reference.n_acts > 0 && !s.is_f32_only);
    if (is_asked && count_rigs(STRAIT_BF16) > 0) check_rigs(run, s, STRAIT_BF16, near);
    rig_clear(&reference);
}

void check_one_of_many(rig_case run, shape s, double tolerance) {
    static rig_case last;
    static int n;
    if (last == NULL || run != last) n = 0;
    last = run;
    if (rig_is_quick() && n++ % QUICK_STRIDE != 0) return;
    check_case(run, s, tolerance);
}

struct rig *reference_rig(void) {
    rig_clear(&reference);
    return &reference;
}

struct rig *rig_under_test(void) {
    rig_clear(under_test);
    return under_test;
}

void on_every_device(void (*test)(void)) {
    under_test = reference_rig();
    test();
    rig_check(under_test);
    for (int i = 0; i < n_rigs; i++) {
        under_test = &rigs[i];
        if (under_test->be->ops->is_host || under_test->be->precision != STRAIT_F32) continue;
        test();
        rig_check(under_test);
    }
}

static struct rig *open_next(strait_backend_spec spec) {
    CHECK(n_rigs < RIGS_MAX);
    rig_open(&rigs[n_rigs], spec);
    rigs[n_rigs].is_alone = 1;
    return &rigs[n_rigs++];
}

/* Also opens a rig for every older instruction set that this processor supports. */
static void open_older_isas(void) {
    for (const struct strait_isa *isa = strait_isas; isa->name != NULL; isa++) {
        if (!isa->is_supported() || isa[1].name == NULL) continue;
        struct rig *rig = open_next((strait_backend_spec){.name = "cpu", .n_threads = 2});
        struct strait_cpu *cpu = rig->be->state;
        isa->fill(&cpu->kernels);
        (void)snprintf(cpu->description, sizeof cpu->description, "2 threads, %s", isa->name);
    }
}

static void open_reference(void) {
    rig_open(&reference, (strait_backend_spec){.name = "cpu", .n_threads = 1, .is_reference = 1});
}

/* A cpu rig in bf16 with other kernels than the fastest. */
static void open_slower_bf16(const struct strait_isa *isa, const struct strait_bf16_units *units) {
    struct rig *rig = open_next(
        (strait_backend_spec){.name = "cpu", .n_threads = 2, .precision = STRAIT_BF16});
    struct strait_cpu *cpu = rig->be->state;
    if (isa != NULL) isa->fill_half(&cpu->half);
    cpu->units = units;
    (void)snprintf(cpu->description, sizeof cpu->description, "2 threads, %s, bf16 products: %s",
                   isa != NULL ? isa->name : "fastest", units != NULL ? units->name : "in f32");
}

/* The cpu in bf16: with several counts of threads, with every slower kind of products, and with the
 * older instruction sets. */
static void open_cpu_bf16(void) {
    const int is_quick = rig_is_quick(), fewest = is_quick ? 1 : FEWEST_THREADS;
    for (int n = fewest; n <= (is_quick ? 1 : 3); n++)
        open_next((strait_backend_spec){.name = "cpu", .n_threads = n, .precision = STRAIT_BF16})
            ->is_alone = n == fewest;
    for (const struct strait_bf16_units *u = strait_bf16_units; u->name != NULL; u++)
        if (u[1].name != NULL && u->is_supported()) open_slower_bf16(NULL, u);
    if (is_quick) return;
    for (const struct strait_isa *isa = strait_isas; isa->name != NULL; isa++)
        if (isa->is_supported()) open_slower_bf16(isa, NULL);
}

static void open_in_bf16(const char *name) {
    if (strcmp(name, "cpu") == 0) {
        open_cpu_bf16();
        return;
    }
    if (can_open(name, STRAIT_BF16, STRAIT_ECONFIG))
        open_next((strait_backend_spec){.name = name, .precision = STRAIT_BF16});
}

int open_rigs(void **state) {
    (void)state;
    open_reference();
    if (!rig_is_quick()) open_older_isas();
    for (int i = 0; strait_backends[i] != NULL; i++) {
        if (!rig_is_available(i)) continue;
        const char *name = strait_backends[i]->name;
        const int is_cpu = strcmp(name, "cpu") == 0;
        const int many = is_cpu && !rig_is_quick(), fewest = many ? FEWEST_THREADS : 1;
        for (int n = fewest; n <= (many ? 3 : 1); n++)
            open_next((strait_backend_spec){.name = name, .n_threads = n})->is_alone = n == fewest;
        open_in_bf16(name);
    }
    return 0;
}

int open_bf16_rigs(void **state) {
    (void)state;
    open_reference();
    for (int i = 0; strait_backends[i] != NULL; i++)
        if (rig_is_available(i)) open_in_bf16(strait_backends[i]->name);
    return 0;
}

int close_rigs(void **state) {
    (void)state;
    while (n_rigs > 0)
        rig_close(&rigs[--n_rigs]);
    rig_close(&reference);
    return 0;
}
