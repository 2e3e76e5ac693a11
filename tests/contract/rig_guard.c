#include "rig.h"

#ifdef __has_feature
    #if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
        #define __SANITIZE_ADDRESS__ // NOLINT(bugprone-reserved-identifier): what gcc says of
                                     // itself
    #endif
#endif
#ifdef __SANITIZE_ADDRESS__
    #include <sanitizer/asan_interface.h>
#endif

enum {
    GUARD = 1024 // bytes on each side; a multiple of every alignment that a backend gives
};

/* The content of guard byte `i` of an allocation: every bf16, and so every f32, is a NaN. A kernel
 * that reads a guard thus computes NaN; the payload is not one that arithmetic produces. */
static unsigned char pattern_at(size_t i) {
    return i % 2 != 0 ? 0xff : (unsigned char)(0x81 + i / 2 % 63);
}

/* The offset of the front (0) or back (1) guard in the allocation. The back one starts at the very
 * next byte: kernels may not write up to a rounded size. */
static size_t begin_of(const struct rig_guard *g, int is_back) {
    return is_back ? GUARD + strait_tensor_bytes(g->inside) : 0;
}

static char *start_of(const struct rig_guard *g) {
    return (char *)g->inside.data - GUARD;
}

/* Forbids or allows the host to touch guards: AddressSanitizer then reports reads, too, where they
 * happen. */
static void forbid(const struct rig *rig, const struct rig_guard *g, int is_forbidden) {
#ifdef __SANITIZE_ADDRESS__
    for (int is_back = 0; rig->own->is_host && is_back < 2; is_back++) {
        char *guard = start_of(g) + begin_of(g, is_back);
        if (is_forbidden)
            __asan_poison_memory_region(guard, GUARD);
        else
            __asan_unpoison_memory_region(guard, GUARD);
    }
#else
    (void)rig;
    (void)g;
    (void)is_forbidden;
#endif
}

static strait_err write_guards(struct rig *rig, const struct rig_guard *g) {
    unsigned char bytes[GUARD];
    for (int is_back = 0; is_back < 2; is_back++) {
        const size_t begin = begin_of(g, is_back);
        for (size_t i = 0; i < GUARD; i++)
            bytes[i] = pattern_at(begin + i);
        STRAIT_TRY(rig->own->upload(&rig->stream, start_of(g) + begin, bytes, GUARD));
    }
    return rig->own->wait(&rig->stream);
}

/* Records how much of one guard was overwritten, and where next to the tensor. */
static void complain(struct rig *rig, const struct rig_guard *g, int is_back,
                     const unsigned char *bytes) {
    const size_t begin = begin_of(g, is_back);
    size_t n_written = 0;
    long long nearest = 0; // overwritten byte, counted from the tensor's first
    for (size_t i = 0; i < GUARD; i++) {
        if (bytes[i] == pattern_at(begin + i)) continue;
        if (n_written++ == 0 || !is_back) nearest = (long long)(begin + i) - GUARD;
    }
    if (n_written == 0) return;
    static const char *const types[] = {"f32", "bf16", "i8", "i32"};
    const size_t n = rig->n_damaged++ > 0 ? strlen(rig->found) : 0;
    (void)snprintf(rig->found + n, sizeof rig->found - n,
                   "%s (%s): tensor %d, %s %lld x %lld, was written outside, %s it: %zu of the %d "
                   "bytes there, the nearest is byte %lld\n",
                   rig->own->describe(rig->be), rig->about, g->number, types[g->inside.dtype],
                   (long long)g->inside.rows, (long long)g->inside.cols,
                   is_back ? "after" : "before", n_written, GUARD, nearest);
}

/* Checks both guards and restores them, so that damage is reported once. */
static void look(struct rig *rig, struct rig_guard *g) {
    unsigned char bytes[2][GUARD];
    const int n_before = rig->n_damaged;
    forbid(rig, g, 0);
    for (int is_back = 0; is_back < 2; is_back++)
        CHECK_OK(rig->own->download(&rig->stream, bytes[is_back],
                                    start_of(g) + begin_of(g, is_back), GUARD));
    CHECK_OK(rig->own->wait(&rig->stream));
    for (int is_back = 0; is_back < 2; is_back++)
        complain(rig, g, is_back, bytes[is_back]);
    if (rig->n_damaged > n_before) CHECK_OK(write_guards(rig, g));
    forbid(rig, g, 1);
}

/* The rig whose guarded table the backend uses. */
static struct rig *rig_of(const struct strait_backend *be) {
    return (struct rig *)((uintptr_t)be->ops - offsetof(struct rig, guarded)); // NOLINT
}

static strait_err take(struct strait_backend *be, size_t bytes, void **out) {
    struct rig *rig = rig_of(be);
    void *memory = NULL;
    CHECK(rig->n_guards < RIG_GUARDS);
    STRAIT_TRY(rig->own->alloc(be, bytes + (size_t)2 * GUARD, &memory));
    struct rig_guard *g = &rig->guards[rig->n_guards];
    *g = (struct rig_guard){{(char *)memory + GUARD, STRAIT_I8, 1, (int64_t)bytes}, rig->n_taken};
    const strait_err err = write_guards(rig, g);
    if (err != STRAIT_OK) {
        rig->own->release(be, memory);
        return err;
    }
    forbid(rig, g, 1);
    rig->n_guards++;
    rig->n_taken++;
    *out = g->inside.data;
    return STRAIT_OK;
}

static void release(struct strait_backend *be, void *memory) {
    struct rig *rig = rig_of(be);
    int i = rig->n_guards - 1;
    if (memory == NULL) return;
    while (i >= 0 && rig->guards[i].inside.data != memory)
        i--;
    CHECK(i >= 0);
    struct rig_guard *g = &rig->guards[i];
    look(rig, g);
    forbid(rig, g, 0);
    rig->own->release(be, start_of(g));
    *g = rig->guards[--rig->n_guards];
}

void rig_guard(struct rig *rig) {
    rig->own = rig->be->ops;
    if (rig_is_quick()) return; // a memory checker must see where allocations end
    rig->guarded = *rig->own;
    rig->guarded.alloc = take;
    rig->guarded.release = release;
    rig->be->ops = &rig->guarded;
}

void rig_unguard(struct rig *rig) {
    if (rig->be != NULL) rig->be->ops = rig->own;
}

void rig_call(struct rig *rig, strait_tensor t) {
    if (rig->n_guards > 0) rig->guards[rig->n_guards - 1].inside = t;
}

int rig_count_damaged(struct rig *rig) {
    for (int i = 0; i < rig->n_guards; i++)
        look(rig, &rig->guards[i]);
    const int n_damaged = rig->n_damaged;
    rig->n_damaged = 0;
    return n_damaged;
}

void rig_check(struct rig *rig) {
    const int n_damaged = rig_count_damaged(rig);
    if (n_damaged == 0) return;
    print_message("%s", rig->found);
    fail_msg("%s (%s): kernels wrote outside of tensors; damaged guards: %d",
             rig->own->describe(rig->be), rig->about, n_damaged);
}

void rig_overwrite(struct rig *rig, strait_tensor t, int64_t at) {
    const struct rig_guard *g = &rig->guards[rig->n_guards - 1];
    const unsigned char byte = 0;
    CHECK(rig->n_guards > 0 && g->inside.data == t.data);
    forbid(rig, g, 0);
    CHECK_OK(rig->own->upload(&rig->stream, (char *)t.data + at, &byte, 1));
    CHECK_OK(rig->own->wait(&rig->stream));
    forbid(rig, g, 1);
}
