/* ref_sample.c - the next token of each row of logits, by definition: every search tries the bits
 * of a key from the first to the last and adds up the whole row for each. */
#include "backend/cpu/cpu.h"
#include "backend/sample.h"

/* One row to sample from. */
struct row {
    const float *logits;
    unsigned char *seen; // NULL: no token counts as seen
    int64_t n;
    strait_sample_row how;
    float top; // the largest value
};

static uint32_t key_of(const struct row *r, int64_t i) {
    return strait_sample_key(
        strait_sample_value(r->logits[i], &r->how, r->seen != NULL && r->seen[i]));
}

/* How many tokens, or how much weight, have at least this key. */
static uint64_t sum_from(const struct row *r, uint64_t key, int counts) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < r->n; i++) {
        const uint32_t own = key_of(r, i);
        if (own >= key) sum += counts ? 1 : strait_sample_weight(own, r->top, r->how.temperature);
    }
    return sum;
}

/* Where the tokens, in their order, reach a number or a sum of weights: the key of the last, how
 * many of that key are needed, and the weight of all up to it. */
struct place {
    uint32_t key;
    uint64_t n_equal, weight;
};

static struct place find(const struct row *r, uint64_t target, int counts) {
    uint32_t key = 0;
    for (int bit = 31; bit >= 0; bit--)
        if (sum_from(r, key | 1u << bit, counts) >= target) key |= 1u << bit;
    const uint64_t each = strait_sample_weight(key, r->top, r->how.temperature);
    const uint64_t unit = counts ? 1 : each, above = sum_from(r, (uint64_t)key + 1, counts);
    const uint64_t n_equal = unit == 0 ? 1 : (target - above + unit - 1) / unit;
    return (struct place){.key = key,
                          .n_equal = n_equal,
                          .weight = sum_from(r, (uint64_t)key + 1, 0) + n_equal * each};
}

/* Of the tokens with this key, the n-th from 1. */
static int32_t nth_of(const struct row *r, uint32_t key, uint64_t n) {
    for (int64_t i = 0; i < r->n; i++)
        if (key_of(r, i) == key && --n == 0) return (int32_t)i;
    return 0;
}

/* The weight of what top-k, top-p and min-p keep: each keeps the first tokens, so the least
 * decides.
 */
static uint64_t kept_weight(const struct row *r) {
    const strait_sample_row *how = &r->how;
    uint64_t weight = sum_from(r, 0, 0), likely = 0;
    if (how->top_k > 0 && how->top_k < r->n) weight = find(r, (uint64_t)how->top_k, 1).weight;
    if (how->top_p < 1.0f) weight = find(r, strait_sample_share(how->top_p, weight), 0).weight;
    if (!(how->min_p > 0.0f)) return weight;
    for (int64_t i = 0; i < r->n; i++) {
        const uint64_t own = strait_sample_weight(key_of(r, i), r->top, how->temperature);
        if ((double)own >= (double)how->min_p * (double)STRAIT_SAMPLE_UNIT) likely += own;
    }
    return likely < weight ? likely : weight;
}

static int32_t draw(struct row *r) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < r->n; i++)
        if (key_of(r, i) > largest) largest = key_of(r, i);
    r->top = strait_sample_unkey(largest);
    if (largest == 0 || strait_sample_is_greedy(&r->how)) return nth_of(r, largest, 1);
    const struct place at = find(r, strait_sample_target(r->how.random, kept_weight(r)), 0);
    return nth_of(r, at.key, at.n_equal);
}

static strait_err sample(struct strait_stream *s, strait_tensor tokens, strait_tensor seen,
                         strait_tensor logits, strait_tensor rows) {
    (void)s;
    const strait_sample_row *how = rows.data;
    assert(logits.data != NULL && logits.dtype == STRAIT_F32);
    assert(tokens.rows == logits.rows && rows.rows == logits.rows);
    for (int64_t i = 0; i < logits.rows; i++) {
        if (how[i].sequence < 0) continue;
        struct row r = {
            .logits = strait_cpu_f32(logits) + i * logits.cols, .n = logits.cols, .how = how[i]};
        if (seen.data != NULL) r.seen = (unsigned char *)seen.data + how[i].sequence * seen.cols;
        const int32_t token = draw(&r);
        ((int32_t *)tokens.data)[i] = token;
        if (r.seen != NULL) r.seen[token] = 1;
    }
    return STRAIT_OK;
}

void strait_ref_sample(struct strait_kernel_set *set) {
    set->base.sample = sample;
}
