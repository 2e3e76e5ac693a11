/* x86.h - which instruction sets this x86-64 processor supports. Include it on x86-64 only. */
#pragma once

static inline int strait_x86_always(void) {
    return 1;
}

static inline int strait_x86_has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static inline int strait_x86_has_avx512(void) {
    return strait_x86_has_avx2() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
