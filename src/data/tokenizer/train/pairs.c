#include "data/tokenizer/train/pairs.h"

#include "base/alloc.h"

#include <string.h>

/* A distinct word of the text as a sequence of symbols, which shrinks as pairs are merged. */
typedef struct symbol_word {
    size_t at;     // offset of its first symbol in `symbols`
    uint32_t n;    // symbols now
    int64_t count; // occurrences in the text
} symbol_word;

/* A pair of adjacent symbols. */
typedef struct entry {
    uint64_t key; // left << 32 | right
    int64_t count;
    uint32_t *words; // words that contain the pair, or did before a merge; may repeat
    size_t n_words, word_capacity;
    int is_raised; // its count rose in the current merge: it is in `raised`
} entry;

/* A heap entry. */
typedef struct candidate {
    int64_t count; // of the pair when it was queued; may be out of date
    uint64_t key;
} candidate;

struct strait_pairs {
    int32_t *symbols;
    symbol_word *words;
    size_t n_words;
    entry *entries;
    size_t n_entries, entry_capacity;
    uint32_t *slots; // hash table from key to entry + 1; 0: free
    size_t n_slots;
    candidate *heap;
    size_t n_heap, heap_capacity;
    uint32_t *raised; // entries to queue at the end of the current merge
    size_t n_raised, raised_capacity;
};

static uint64_t key_of(int32_t left, int32_t right) {
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static size_t slot_of(const struct strait_pairs *p, uint64_t key) {
    const uint64_t hash = (key ^ key >> 29) * 0xff51afd7ed558ccdu;
    return (size_t)(hash >> 32) & (p->n_slots - 1);
}

static strait_err rehash(struct strait_pairs *p) {
    const size_t old = p->n_slots;
    strait_alloc_free(p->slots);
    p->slots = NULL;
    p->n_slots = old == 0 ? 1 << 16 : old * 2;
    STRAIT_TRY(strait_alloc(p->n_slots, sizeof *p->slots, "pair index", (void **)&p->slots));
    for (size_t i = 0; i < p->n_entries; i++) {
        size_t at = slot_of(p, p->entries[i].key);
        while (p->slots[at] != 0)
            at = (at + 1) & (p->n_slots - 1);
        p->slots[at] = (uint32_t)i + 1;
    }
    return STRAIT_OK;
}

/* Finds the entry of a key; adds one if there is none. May move p->entries. */
static strait_err find(struct strait_pairs *p, uint64_t key, uint32_t *out) {
    if (p->n_entries * 2 >= p->n_slots) STRAIT_TRY(rehash(p));
    size_t at = slot_of(p, key);
    for (; p->slots[at] != 0; at = (at + 1) & (p->n_slots - 1)) {
        *out = p->slots[at] - 1;
        if (p->entries[*out].key == key) return STRAIT_OK;
    }
    STRAIT_TRY(strait_buffer_reserve((void **)&p->entries, &p->entry_capacity, p->n_entries + 1,
                                     sizeof *p->entries));
    *out = (uint32_t)p->n_entries++;
    p->entries[*out] = (entry){.key = key};
    p->slots[at] = *out + 1;
    return STRAIT_OK;
}

/* The heap's order: more frequent pairs first; of equally frequent ones, the smaller key. */
static int is_before(const candidate *a, const candidate *b) {
    return a->count != b->count ? a->count > b->count : a->key < b->key;
}

static strait_err push(struct strait_pairs *p, candidate c) {
    STRAIT_TRY(strait_buffer_reserve((void **)&p->heap, &p->heap_capacity, p->n_heap + 1,
                                     sizeof *p->heap));
    size_t at = p->n_heap++;
    while (at > 0 && is_before(&c, &p->heap[(at - 1) / 2])) {
        p->heap[at] = p->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    p->heap[at] = c;
    return STRAIT_OK;
}

static void pop(struct strait_pairs *p) {
    const candidate last = p->heap[--p->n_heap];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= p->n_heap) break;
        if (child + 1 < p->n_heap && is_before(&p->heap[child + 1], &p->heap[child])) child++;
        if (!is_before(&p->heap[child], &last)) break;
        p->heap[at] = p->heap[child];
        at = child;
    }
    p->heap[at] = last;
}

/* Counts one more occurrence of a pair in a word. */
static strait_err raise_count(struct strait_pairs *p, uint64_t key, uint32_t word) {
    uint32_t index = 0;
    STRAIT_TRY(find(p, key, &index));
    entry *e = &p->entries[index];
    e->count += p->words[word].count;
    /* Words are processed one after the other, so comparing with the last one removes most
     * duplicates. The rest do no harm: merging a word again changes nothing. */
    if (e->n_words == 0 || e->words[e->n_words - 1] != word) {
        if (e->n_words == e->word_capacity) {
            const size_t capacity = e->word_capacity == 0 ? 16 : e->word_capacity * 2;
            STRAIT_TRY(strait_alloc_grow((void **)&e->words, e->n_words, capacity, sizeof *e->words,
                                         "pair places"));
            e->word_capacity = capacity;
        }
        e->words[e->n_words++] = word;
    }
    if (e->is_raised) return STRAIT_OK;
    STRAIT_TRY(strait_buffer_reserve((void **)&p->raised, &p->raised_capacity, p->n_raised + 1,
                                     sizeof *p->raised));
    e->is_raised = 1;
    p->raised[p->n_raised++] = index;
    return STRAIT_OK;
}

static strait_err lower_count(struct strait_pairs *p, uint64_t key, uint32_t word) {
    uint32_t index = 0;
    STRAIT_TRY(find(p, key, &index));
    p->entries[index].count -= p->words[word].count;
    return STRAIT_OK;
}

/* Queues the pairs whose count rose. A pair whose count fell keeps its old heap entry, which
 * overestimates it; strait_pairs_best corrects that when the entry reaches the top. */
static strait_err queue_raised(struct strait_pairs *p) {
    for (size_t i = 0; i < p->n_raised; i++) {
        entry *e = &p->entries[p->raised[i]];
        e->is_raised = 0;
        if (e->count > 0) STRAIT_TRY(push(p, (candidate){e->count, e->key}));
    }
    p->n_raised = 0;
    return STRAIT_OK;
}

/* Turns the counted words into symbols and counts their pairs. */
static strait_err init_words(struct strait_pairs *p, const struct strait_word_counts *words,
                             const int32_t first_ids[256]) {
    size_t n_symbols = 0;
    STRAIT_TRY(strait_alloc(words->blob.n, sizeof *p->symbols, "symbols", (void **)&p->symbols));
    STRAIT_TRY(strait_alloc(words->n_used, sizeof *p->words, "words", (void **)&p->words));
    for (size_t i = 0; i < words->n_slots; i++) {
        const strait_word_count *word = &words->slots[i];
        if (word->count == 0) continue;
        p->words[p->n_words++] = (symbol_word){n_symbols, word->n, word->count};
        for (size_t k = 0; k < word->n; k++)
            p->symbols[n_symbols++] = first_ids[words->blob.data[word->at + k]];
    }
    for (size_t w = 0; w < p->n_words; w++) {
        const int32_t *symbols = p->symbols + p->words[w].at;
        for (uint32_t k = 0; k + 1 < p->words[w].n; k++)
            STRAIT_TRY(raise_count(p, key_of(symbols[k], symbols[k + 1]), (uint32_t)w));
    }
    return queue_raised(p);
}

strait_err strait_pairs_open(const struct strait_word_counts *words, const int32_t first_ids[256],
                             struct strait_pairs **out) {
    struct strait_pairs *p = NULL;
    if (words->n_used > UINT32_MAX / 2)
        return STRAIT_FAIL(STRAIT_EDATA, "%zu different words are too many; train on less text",
                           words->n_used);
    STRAIT_TRY(strait_alloc(1, sizeof *p, "pairs", (void **)&p));
    const strait_err err = init_words(p, words, first_ids);
    if (err == STRAIT_OK)
        *out = p;
    else
        strait_pairs_close(&p);
    return err;
}

void strait_pairs_close(struct strait_pairs **pairs) {
    struct strait_pairs *p = *pairs;
    if (p == NULL) return;
    for (size_t i = 0; i < p->n_entries; i++)
        strait_alloc_free(p->entries[i].words);
    strait_alloc_free(p->entries);
    strait_alloc_free(p->slots);
    strait_alloc_free(p->heap);
    strait_alloc_free(p->raised);
    strait_alloc_free(p->words);
    strait_alloc_free(p->symbols);
    strait_alloc_free(p);
    *pairs = NULL;
}

strait_err strait_pairs_best(struct strait_pairs *pairs, strait_pair *out) {
    *out = (strait_pair){0, 0, 0};
    while (pairs->n_heap > 0) {
        const candidate top = pairs->heap[0];
        uint32_t index = 0;
        STRAIT_TRY(find(pairs, top.key, &index));
        const int64_t count = pairs->entries[index].count;
        if (count == top.count) {
            *out = (strait_pair){(int32_t)(top.key >> 32), (int32_t)(uint32_t)top.key, count};
            break;
        }
        pop(pairs);
        if (count > 0) STRAIT_TRY(push(pairs, (candidate){count, top.key}));
    }
    return STRAIT_OK;
}

/* Merges a pair in one word, in place, and updates the counts of the pairs around each
 * occurrence. */
static strait_err merge_word(struct strait_pairs *p, uint32_t word, strait_pair pair, int32_t id) {
    int32_t *s = p->symbols + p->words[word].at;
    const uint32_t n = p->words[word].n;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (i + 1 == n || s[i] != pair.left || s[i + 1] != pair.right) {
            s[kept++] = s[i];
            continue;
        }
        if (kept > 0) {
            STRAIT_TRY(lower_count(p, key_of(s[kept - 1], pair.left), word));
            STRAIT_TRY(raise_count(p, key_of(s[kept - 1], id), word));
        }
        if (i + 2 < n) {
            STRAIT_TRY(lower_count(p, key_of(pair.right, s[i + 2]), word));
            STRAIT_TRY(raise_count(p, key_of(id, s[i + 2]), word));
        }
        s[kept++] = id;
        i++;
    }
    p->words[word].n = kept;
    return STRAIT_OK;
}

strait_err strait_pairs_merge(struct strait_pairs *pairs, strait_pair pair, int32_t id) {
    uint32_t index = 0;
    STRAIT_TRY(find(pairs, key_of(pair.left, pair.right), &index));
    uint32_t *words = pairs->entries[index].words;
    const size_t n_words = pairs->entries[index].n_words;
    pairs->entries[index].words = NULL; // take the list: entries may move while words are merged
    pairs->entries[index].n_words = pairs->entries[index].word_capacity = 0;
    strait_err err = STRAIT_OK;
    for (size_t i = 0; err == STRAIT_OK && i < n_words; i++)
        err = merge_word(pairs, words[i], pair, id);
    strait_alloc_free(words);
    STRAIT_TRY(err);
    pairs->entries[index].count = 0; // no occurrence is left, whatever the overlaps ("aaa") counted
    return queue_raised(pairs);
}
