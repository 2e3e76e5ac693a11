/* bf16.c - compares products and attention by bfmmla with the reference loops, and the bits of one
 * thread with those of three. Compiled and run by bf16.sh, natively or under qemu. */
#include "backend/cpu/bf16_product.h"
#include "backend/cpu/flash.h"
#include "base/text/text.h"

#include <stdio.h>
#include <stdlib.h>

/* Errors quote nobody here, and the library that knows UTF-8 is not there for this processor. */
void strait_text_tame(char *text) {
    (void)text;
}

static uint32_t state = 1;

/* In [-1, 1), exact in bf16: eight bits. */
static float draw(void) {
    state = state * 1664525u + 1013904223u;
    return (float)((int)(state >> 24) - 128) / 128;
}

static uint16_t *draw_halves(int64_t n) {
    uint16_t *values = malloc((size_t)n * sizeof *values);
    for (int64_t i = 0; i < n; i++)
        values[i] = strait_cpu_round(draw());
    return values;
}

static struct strait_cpu open_cpu(int n_threads) {
    struct strait_cpu cpu = {0};
    cpu.left = malloc(STRAIT_CPU_LEFT * sizeof(float));
    cpu.right = malloc(STRAIT_CPU_RIGHT * sizeof(float));
    if (cpu.left == NULL || cpu.right == NULL || strait_pool_open(n_threads, &cpu.pool) != 0)
        exit(1);
    return cpu;
}

static int fail(const char *what, strait_bf16_product p, int64_t at) {
    printf("FAIL: %s: %lld x %lld, depth %lld, value %lld\n", what, (long long)p.rows,
           (long long)p.cols, (long long)p.depth, (long long)at);
    return 1;
}

/* The result by the definition, sums in double precision. */
static double wanted(const strait_bf16_product *p, double old, int64_t at) {
    double sum = 0;
    for (int64_t k = 0; k < p->depth; k++)
        sum += (double)strait_cpu_widen(p->a[at / p->cols * p->a_row + k * p->a_depth]) *
               (double)strait_cpu_widen(p->b[at % p->cols * p->b_col + k * p->b_depth]);
    return (double)p->alpha * sum + (double)p->beta * old;
}

/* variant: bits for the transposes of both sides, for adding to y, and for a bf16 result. */
static int check(const struct strait_cpu cpus[2], int64_t rows, int64_t cols, int64_t depth,
                 int variant) {
    const int64_t n = rows * cols;
    uint16_t *a = draw_halves(rows * depth), *b = draw_halves(cols * depth), *half[2];
    float *y[2], *old = malloc((size_t)n * sizeof *old);
    int n_failed = 0;
    strait_bf16_product p = {.a = a,
                             .b = b,
                             .a_row = variant & 1 ? 1 : depth,
                             .a_depth = variant & 1 ? rows : 1,
                             .b_col = variant & 2 ? depth : 1,
                             .b_depth = variant & 2 ? 1 : cols,
                             .rows = rows,
                             .cols = cols,
                             .depth = depth,
                             .alpha = variant & 4 ? -0.5f : 1.0f,
                             .beta = variant & 4 ? 0.25f : 0.0f};
    for (int64_t i = 0; i < n; i++)
        old[i] = draw();
    for (int c = 0; c < 2; c++) {
        y[c] = malloc((size_t)n * sizeof *y[c]);
        half[c] = malloc((size_t)n * sizeof *half[c]);
        for (int64_t i = 0; i < n; i++) {
            y[c][i] = old[i];
            half[c][i] = strait_cpu_round(old[i]);
        }
        p.y = variant & 8 ? NULL : y[c];
        p.y_half = variant & 8 ? half[c] : NULL;
        strait_bf16_units[0].multiply(&cpus[c], &p);
    }
    const double tolerance = variant & 8 ? 8e-3 : 2e-5;
    for (int64_t i = 0; i < n && n_failed == 0; i++) {
        const double want = wanted(&p, (double)old[i], i), size = 1 + sqrt((double)depth) / 3;
        const double got = variant & 8 ? (double)strait_cpu_widen(half[0][i]) : (double)y[0][i];
        if (!(fabs(got - want) <= tolerance * (fabs(want) + size)))
            n_failed += fail("differs from the definition", p, i);
    }
    if (memcmp(y[0], y[1], (size_t)n * sizeof *y[0]) != 0 ||
        memcmp(half[0], half[1], (size_t)n * sizeof *half[0]) != 0)
        n_failed += fail("three threads give other bits", p, 0);
    for (int c = 0; c < 2; c++) {
        free(y[c]);
        free(half[c]);
    }
    free(a);
    free(b);
    free(old);
    return n_failed;
}

/* A tensor of drawn values, or of zeros. */
static strait_tensor new_tensor(int64_t rows, int64_t cols, strait_dtype dtype, int is_drawn) {
    strait_tensor t = {.dtype = dtype, .rows = rows, .cols = cols};
    t.data = calloc((size_t)(rows * cols), strait_dtype_bytes(dtype));
    for (int64_t i = 0; is_drawn && i < rows * cols; i++)
        strait_cpu_put(t, i, 2 * draw());
    return t;
}

/* Whether two tensors differ by more than rounding to eight bits on the way; frees both. */
static int differs(strait_tensor got_want[2]) {
    double square = 0, error = 0;
    for (int64_t i = 0; i < got_want[0].rows * got_want[0].cols; i++) {
        const double want = (double)strait_cpu_get(got_want[1], i);
        const double off = (double)strait_cpu_get(got_want[0], i) - want;
        square += want * want;
        error += off * off;
    }
    free(got_want[0].data);
    free(got_want[1].data);
    return !(error <= 2e-2 * 2e-2 * square);
}

/* The same values in f32, which the reference loops of attention read. */
static strait_tensor widened(strait_tensor from) {
    const strait_tensor to = new_tensor(from.rows, from.cols, STRAIT_F32, 0);
    for (int64_t i = 0; i < to.rows * to.cols; i++)
        strait_cpu_put(to, i, strait_cpu_get(from, i));
    return to;
}

/* Attention and its gradient over two sequences. Index 0: by bfmmla, item by item; 1: the
 * reference. */
static int check_attention(strait_heads heads) {
    const int64_t rows = 2 * (int64_t)heads.seq_len, cols = strait_cpu_qkv_cols(heads);
    const int64_t y_cols = (int64_t)heads.n_query * heads.head_dim;
    strait_tensor qkv[2], d_y[2], y[2], lse[2], d_qkv[2];
    for (int i = 0; i < 2; i++) {
        const strait_dtype dtype = i == 0 ? STRAIT_BF16 : STRAIT_F32;
        qkv[i] = i == 0 ? new_tensor(rows, cols, dtype, 1) : widened(qkv[0]);
        d_y[i] = i == 0 ? new_tensor(rows, y_cols, dtype, 1) : widened(d_y[0]);
        y[i] = new_tensor(rows, y_cols, dtype, 0);
        lse[i] = new_tensor(rows, heads.n_query, STRAIT_F32, 0);
        d_qkv[i] = new_tensor(rows, cols, dtype, 0);
    }
    float *scratch = malloc((STRAIT_CPU_SCRATCH + STRAIT_CPU_HALF_SCRATCH) * sizeof *scratch);
    const struct flash_job job = {.qkv = qkv[0].data,
                                  .y = y[0].data,
                                  .d_y = d_y[0].data,
                                  .lse = lse[0].data,
                                  .out = y[0].data,
                                  .d_qkv = d_qkv[0].data,
                                  .out_lse = lse[0].data,
                                  .cols = cols,
                                  .y_cols = y_cols,
                                  .heads = heads};
    const int n = 2 * heads.n_query * (int)pieces(heads.seq_len, STRAIT_BF16_CHUNK);
    for (int item = 0; item < n; item++)
        strait_bf16_units[0].attend(&job, item, scratch);
    for (int item = 0; item < 2 * heads.n_key; item++)
        strait_bf16_units[0].attend_back(&job, item, scratch);
    struct strait_kernel_set reference = {0};
    strait_ref_attention(&reference);
    (void)reference.base.attention(NULL, y[1], lse[1], qkv[1], heads);
    (void)reference.base.attention_back(NULL, d_qkv[1], d_y[1], y[1], qkv[1], lse[1], heads);
    const int is_other = differs(y) + differs(lse) + differs(d_qkv);
    if (is_other)
        printf("FAIL: attention: %d tokens, heads of %d\n", (int)heads.seq_len, heads.head_dim);
    for (int i = 0; i < 2; i++) {
        free(qkv[i].data);
        free(d_y[i].data);
    }
    free(scratch);
    return is_other != 0;
}

static int check_attentions(void) {
    static const strait_heads heads[] = {
        {.n_query = 1, .n_key = 1, .head_dim = 4, .seq_len = 1},
        {.n_query = 2, .n_key = 1, .head_dim = 20, .seq_len = 33},
        {.n_query = 1, .n_key = 1, .head_dim = 64, .seq_len = 64},
        {.n_query = 4, .n_key = 2, .head_dim = 38, .seq_len = 300},
        {.n_query = 1, .n_key = 1, .head_dim = 256, .seq_len = 70},
    };
    int n_failed = 0;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        strait_heads h = heads[i];
        h.scale = 1 / sqrtf((float)h.head_dim);
        n_failed += check_attention(h);
    }
    return n_failed;
}

/* The instruction that rounds gives the bits of strait_cpu_round: 1 times each value, which is
 * scaled before it is stored. */
static int check_rounding(const struct strait_cpu *cpu) {
    static const uint32_t values[] = {0x00000001, 0x80000001, 0x00018000, 0x007fffff, 0x3f808000,
                                      0x3f818000, 0x3f817fff, 0x7f7fffff, 0xff800000, 0x7fc00000,
                                      0x7fc12345, 0xffffffff, 0x80000000};
    const uint16_t one = strait_cpu_round(1);
    int n_failed = 0;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        uint16_t y[LANES] = {0}, ones[LANES];
        strait_bf16_product p = {.a = &one, .b = ones, .y_half = y, .a_row = 1, .a_depth = 1};
        p.b_col = p.b_depth = p.rows = p.depth = 1;
        p.cols = LANES;
        for (int64_t j = 0; j < LANES; j++)
            ones[j] = one;
        memcpy(&p.alpha, &values[i], sizeof p.alpha);
        strait_bf16_units[0].multiply(cpu, &p);
        if (y[0] != strait_cpu_round(p.alpha)) {
            printf("FAIL: %08x is rounded to %04x\n", values[i], y[0]);
            n_failed++;
        }
    }
    return n_failed;
}

int main(void) {
    static const int64_t sizes[][3] = {{1, 1, 1},    {3, 7, 5},     {33, 31, 40},   {129, 17, 133},
                                       {64, 64, 64}, {40, 520, 33}, {20, 24, 4200}, {96, 70, 608}};
    if (strait_bf16_units[0].name == NULL || !strait_bf16_units[0].is_supported()) {
        puts("FAIL: no bf16 instructions");
        return 1;
    }
    const struct strait_cpu cpus[2] = {open_cpu(1), open_cpu(3)};
    int n_failed = 0, n = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int variant = 0; variant < 16; variant++, n++)
            n_failed += check(cpus, sizes[i][0], sizes[i][1], sizes[i][2], variant);
    n_failed += check_attentions() + check_rounding(&cpus[0]);
    printf("%s: %d products and attention, %d failed\n", strait_bf16_units[0].name, n, n_failed);
    return n_failed != 0;
}
