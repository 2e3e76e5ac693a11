/* bf16_tile_x86.c - packed panels and the innermost loops of bf16 products: vdpbf16ps, and the
 * tiles of AMX. */
#include "backend/cpu/bf16_x86.h"
#include "backend/cpu/transpose_x86.h"

#define TILE_LINES INT64_C(16) // of one tile
#define TILE_PAIRS INT64_C(16) // pairs of depths of one tile

/* The first n of 16 lines, of 32 depths each from k on: a vector of pairs per line. */
static void load_by_line(__m512i v[TILE_LINES], const strait_bf16_side *s, int64_t line, int64_t k,
                         int64_t n) {
    const int64_t depth = s->depth - k;
    const __mmask32 mask = depth >= BF16_DEPTH ? 0xffffffffu : (1u << depth) - 1u;
    for (int64_t i = 0; i < TILE_LINES; i++)
        v[i] = i < n ? _mm512_maskz_loadu_epi16(mask, s->from + (line + i) * s->line_step + k)
                     : _mm512_setzero_si512();
}

/* One depth of 16 lines, the first n of which exist, widened to 32 bits. */
static __m512i load_depth(const strait_bf16_side *s, int64_t line, int64_t k, __mmask16 mask) {
    if (k >= s->depth) return _mm512_setzero_si512();
    return _mm512_cvtepu16_epi32(
        _mm256_maskz_loadu_epi16(mask, s->from + line + k * s->depth_step));
}

/* The same where lines are contiguous: a vector of lines per pair of depths. */
static void load_by_pair(__m512i v[TILE_PAIRS], const strait_bf16_side *s, int64_t line, int64_t k,
                         int64_t n) {
    const __mmask16 mask = (__mmask16)(n >= TILE_LINES ? 0xffffu : (1u << n) - 1u);
    for (int64_t i = 0; i < TILE_PAIRS; i++)
        v[i] = _mm512_or_si512(load_depth(s, line, k + 2 * i, mask),
                               _mm512_slli_epi32(load_depth(s, line, k + 2 * i + 1, mask), 16));
}

static void pack_tile(uint16_t *to, const strait_bf16_side *s, int64_t line, int64_t k) {
    const int is_by_line = s->depth_step == 1;
    __m512i v[16];
    if (line >= s->lines) {
        memset(to, 0, (size_t)BF16_TILE * sizeof *to);
        return;
    }
    if (is_by_line)
        load_by_line(v, s, line, k, s->lines - line);
    else
        load_by_pair(v, s, line, k, s->lines - line);
    if (is_by_line == s->is_right) strait_transpose(v);
    for (int64_t i = 0; i < 16; i++)
        _mm512_storeu_si512(to + i * 32, v[i]);
}

void strait_bf16_pack(uint16_t *to, const strait_bf16_side *side, int64_t line) {
    for (int64_t k = 0; k < side->depth; k += BF16_DEPTH)
        for (int64_t i = 0; i < BF16_PANEL; i += TILE_LINES, to += BF16_TILE)
            pack_tile(to, side, line + i, k);
}

/* A [16 x 16] quarter of the block: one vector of sums per row. */
static void multiply_quarter(float *sums, strait_bf16_lines left, const uint16_t *right,
                             int64_t n_blocks, int adds) {
    const uint16_t *from = left.from;
    __m512 sum[TILE_LINES];
    for (int64_t i = 0; i < TILE_LINES; i++)
        sum[i] = adds ? _mm512_loadu_ps(sums + i * BF16_PANEL) : _mm512_setzero_ps();
    for (int64_t b = 0; b < n_blocks; b++, from += left.block_step, right += 2 * BF16_TILE)
        for (int64_t p = 0; p < TILE_PAIRS; p++) {
            const __m512i lines = _mm512_loadu_si512(right + p * 32);
#pragma GCC unroll 16
            for (int64_t i = 0; i < TILE_LINES; i++) {
                int32_t pair;
                memcpy(&pair, from + i * left.line_step + p * 2, sizeof pair);
                sum[i] = _mm512_dpbf16_ps(sum[i], (__m512bh)_mm512_set1_epi32(pair),
                                          (__m512bh)lines);
            }
        }
    for (int64_t i = 0; i < TILE_LINES; i++)
        _mm512_storeu_ps(sums + i * BF16_PANEL, sum[i]);
}

void strait_bf16_tile_avx512(float *sums, strait_bf16_lines left, const uint16_t *right,
                             int64_t n_blocks, int adds) {
    for (int64_t i = 0; i < 2; i++, left.from += left.tile_step)
        for (int64_t j = 0; j < 2; j++)
            multiply_quarter(sums + i * TILE_LINES * BF16_PANEL + j * TILE_LINES, left,
                             right + j * BF16_TILE, n_blocks, adds);
}

/* The layout that ldtilecfg reads. */
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
_Static_assert(sizeof(struct tile_config) == 64, "the processor's format");

void strait_bf16_amx_begin(void) {
    struct tile_config config = {.palette = 1};
    for (int64_t i = 0; i < 8; i++) {
        config.row_bytes[i] = 64;
        config.rows[i] = 16;
    }
    _tile_loadconfig(&config);
}

/* Without live tiles the kernel has less to save when it switches threads. */
void strait_bf16_amx_end(void) {
    _tile_release();
}

/* Tiles 0 to 3 hold the sums, 4 and 5 the left side, 6 and 7 the right side. */
void strait_bf16_tile_amx(float *sums, strait_bf16_lines left, const uint16_t *right,
                          int64_t n_blocks, int adds) {
    const int64_t ld = BF16_PANEL * (int64_t)sizeof *sums, row = left.line_step * 2;
    const uint16_t *upper = left.from, *lower = left.from + left.tile_step;
    if (adds) {
        _tile_loadd(0, sums, ld);
        _tile_loadd(1, sums + 16, ld);
        _tile_loadd(2, sums + 16 * BF16_PANEL, ld);
        _tile_loadd(3, sums + 16 * BF16_PANEL + 16, ld);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t b = 0; b < n_blocks; b++, right += 2 * BF16_TILE) {
        _tile_loadd(4, upper, row);
        _tile_loadd(6, right, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, right + BF16_TILE, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, lower, row);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        upper += left.block_step;
        lower += left.block_step;
    }
    _tile_stored(0, sums, ld);
    _tile_stored(1, sums + 16, ld);
    _tile_stored(2, sums + 16 * BF16_PANEL, ld);
    _tile_stored(3, sums + 16 * BF16_PANEL + 16, ld);
}

void strait_bf16_multiply_avx512(const struct strait_cpu *cpu, const strait_bf16_product *p) {
    static const strait_bf16_block_ops ops = {.multiply = strait_bf16_tile_avx512,
                                              .reads_lines = 1};
    strait_bf16_multiply(cpu, p, &ops);
}

void strait_bf16_multiply_amx(const struct strait_cpu *cpu, const strait_bf16_product *p) {
    static const strait_bf16_block_ops ops = {.multiply = strait_bf16_tile_amx,
                                              .begin = strait_bf16_amx_begin,
                                              .end = strait_bf16_amx_end,
                                              .reads_lines = 1};
    strait_bf16_multiply(cpu, p, &ops);
}

void strait_bf16_attend_avx512(const struct flash_job *job, int item, float *scratch) {
    strait_bf16_attend_with(strait_bf16_tile_avx512, job, item, scratch);
}

void strait_bf16_attend_back_avx512(const struct flash_job *job, int item, float *scratch) {
    strait_bf16_attend_back_with(strait_bf16_tile_avx512, job, item, scratch);
}

void strait_bf16_attend_amx(const struct flash_job *job, int item, float *scratch) {
    strait_bf16_amx_begin();
    strait_bf16_attend_with(strait_bf16_tile_amx, job, item, scratch);
    strait_bf16_amx_end();
}

void strait_bf16_attend_back_amx(const struct flash_job *job, int item, float *scratch) {
    strait_bf16_amx_begin();
    strait_bf16_attend_back_with(strait_bf16_tile_amx, job, item, scratch);
    strait_bf16_amx_end();
}
