/* simd_sample.c - the next token of each row of logits (defined by ref_sample.c), one row per task.
 *
 * A search takes the key byte by byte: a histogram of the tokens that share the bytes found so far
 * says in which bin the target is reached. */
#include "backend/cpu/simd.h"
#include "backend/sample.h"

enum {
    BINS = 256
};

struct row {
    const float *logits;
    unsigned char *seen; // NULL: no token counts as seen
    int64_t n;
    strait_sample_row how;
    float top; // the largest value
};

struct sampling {
    const strait_sample_row *how;
    strait_tensor logits, seen;
    int32_t *tokens;
};

static uint32_t key_of(const struct row *r, int64_t i) {
    return strait_sample_key(
        strait_sample_value(r->logits[i], &r->how, r->seen != NULL && r->seen[i]));
}

static uint64_t weight_of(const struct row *r, uint32_t key) {
    return strait_sample_weight(key, r->top, r->how.temperature);
}

/* Tokens, and their weight: of one bin, or of everything before a key. */
struct share {
    uint64_t n, weight;
};

/* Where the tokens, in their order, reach a target. */
struct place {
    uint32_t key;
    uint64_t n_equal, weight;
};

static uint64_t amount(struct share s, int counts) {
    return counts ? s.n : s.weight;
}

/* One byte of the key: the bin in which the target is reached; *above gets what comes before it. */
static uint32_t find_byte(const struct row *r, uint32_t known, int shift, uint64_t target,
                          int counts, struct share *above) {
    struct share bins[BINS] = {{0}};
    for (int64_t i = 0; i < r->n; i++) {
        const uint32_t key = key_of(r, i);
        if (shift < 24 && key >> (shift + 8) != known) continue;
        struct share *bin = &bins[key >> shift & (BINS - 1)];
        bin->n++;
        bin->weight += weight_of(r, key);
    }
    uint32_t bin = BINS - 1;
    while (bin > 0 && amount(*above, counts) + amount(bins[bin], counts) < target) {
        above->n += bins[bin].n;
        above->weight += bins[bin].weight;
        bin--;
    }
    return bin;
}

static struct place find(const struct row *r, uint64_t target, int counts) {
    struct share above = {0};
    uint32_t key = 0;
    for (int shift = 24; shift >= 0; shift -= 8)
        key = key << 8 | find_byte(r, key, shift, target, counts, &above);
    const uint64_t each = weight_of(r, key), unit = counts ? 1 : each;
    const uint64_t n_equal = unit == 0 ? 1 : (target - amount(above, counts) + unit - 1) / unit;
    return (struct place){key, n_equal, above.weight + n_equal * each};
}

static int32_t nth_of(const struct row *r, uint32_t key, uint64_t n) {
    for (int64_t i = 0; i < r->n; i++)
        if (key_of(r, i) == key && --n == 0) return (int32_t)i;
    return 0;
}

/* The weight of all tokens, or of those that min-p keeps. */
static uint64_t sum_likely(const struct row *r, float min_p) {
    const double least = (double)min_p * (double)STRAIT_SAMPLE_UNIT;
    uint64_t sum = 0;
    for (int64_t i = 0; i < r->n; i++) {
        const uint64_t own = weight_of(r, key_of(r, i));
        if ((double)own >= least) sum += own;
    }
    return sum;
}

static uint64_t kept_weight(const struct row *r) {
    const strait_sample_row *how = &r->how;
    uint64_t weight = 0, likely = 0;
    if (how->top_k > 0 && how->top_k < r->n)
        weight = find(r, (uint64_t)how->top_k, 1).weight;
    else
        weight = sum_likely(r, 0.0f);
    if (how->top_p < 1.0f) weight = find(r, strait_sample_share(how->top_p, weight), 0).weight;
    if (!(how->min_p > 0.0f)) return weight;
    likely = sum_likely(r, how->min_p);
    return likely < weight ? likely : weight;
}

static int32_t draw(struct row *r) {
    int32_t first = 0;
    uint32_t largest = 0;
    for (int64_t i = 0; i < r->n; i++) {
        const uint32_t key = key_of(r, i);
        if (key > largest) largest = key, first = (int32_t)i;
    }
    r->top = strait_sample_unkey(largest);
    if (largest == 0 || strait_sample_is_greedy(&r->how)) return first;
    const struct place at = find(r, strait_sample_target(r->how.random, kept_weight(r)), 0);
    return nth_of(r, at.key, at.n_equal);
}

static void sample_task(void *arg, int task) {
    const struct sampling *s = arg;
    const strait_sample_row *how = &s->how[task];
    assert(s->logits.data != NULL);
    if (how->sequence < 0) return;
    struct row r = {.logits = strait_cpu_f32(s->logits) + task * s->logits.cols,
                    .n = s->logits.cols,
                    .how = *how};
    if (s->seen.data != NULL) r.seen = (unsigned char *)s->seen.data + how->sequence * s->seen.cols;
    const int32_t token = draw(&r);
    s->tokens[task] = token;
    if (r.seen != NULL) r.seen[token] = 1;
}

static strait_err sample(struct strait_stream *s, strait_tensor tokens, strait_tensor seen,
                         strait_tensor logits, strait_tensor rows) {
    assert(logits.data != NULL && logits.dtype == STRAIT_F32);
    assert(tokens.rows == logits.rows && rows.rows == logits.rows);
    struct sampling all = {.how = rows.data, .logits = logits, .seen = seen, .tokens = tokens.data};
    strait_pool_run(strait_cpu_pool(s), (int)logits.rows, sample_task, &all);
    return STRAIT_OK;
}

void SIMD(sample)(struct strait_kernel_set *set) {
    set->base.sample = sample;
}
