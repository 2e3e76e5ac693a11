/* bf16_units_x86.c - which bf16 instructions this processor and its operating system allow.
 * Compiled without them, so that asking is safe everywhere. */
#include "backend/cpu/bf16_x86.h"
#include "base/x86.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    ARCH_REQ_XCOMP_PERM = 0x1023, // of arch_prctl
    XFEATURE_TILE_DATA = 18
};

/* The registers of a leaf and subleaf of cpuid; zeros where it does not exist. */
struct leaf {
    unsigned a, b, c, d;
};

static struct leaf cpuid_leaf(unsigned leaf, unsigned subleaf) {
    struct leaf l = {0};
    if (!__get_cpuid_count(leaf, subleaf, &l.a, &l.b, &l.c, &l.d)) return (struct leaf){0};
    return l;
}

static int has_avx512_bf16(void) {
    return strait_x86_has_avx512() && (cpuid_leaf(7, 1).a & 1u << 5) != 0;
}

static int processor_has_amx(void) {
    const unsigned tile = 1u << 24, bf16 = 1u << 22;
    const unsigned d = cpuid_leaf(7, 0).d;
    return has_avx512_bf16() && (d & tile) != 0 && (d & bf16) != 0;
}

/* Linux gives a process the memory for tiles only on request, and only where nothing (a small
 * signal stack, a virtual machine) forbids it. Asking again is harmless. */
static int has_amx(void) {
    return processor_has_amx() &&
           syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_TILE_DATA) == 0;
}

const char *strait_bf16_note(void) {
    return processor_has_amx() && !has_amx() ? "the system does not permit amx_bf16" : NULL;
}

/* From the slowest to the fastest: the last supported one is used. */
const struct strait_bf16_units strait_bf16_units[] = {
    {"avx512_bf16", has_avx512_bf16, strait_bf16_takes, strait_bf16_multiply_avx512,
     strait_bf16_attend_avx512, strait_bf16_attend_back_avx512},
    {"amx_bf16", has_amx, strait_bf16_takes, strait_bf16_multiply_amx, strait_bf16_attend_amx,
     strait_bf16_attend_back_amx},
    {0},
};
