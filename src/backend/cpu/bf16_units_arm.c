/* bf16_units_arm.c - whether this aarch64 processor has bf16 instructions. Compiled without them,
 * so that asking is safe everywhere. */
#include "backend/cpu/bf16_arm.h"

#include <sys/auxv.h>

#define HAS_BF16 (1ul << 14) // of AT_HWCAP2, in Linux's list of capabilities

static int has_bf16(void) {
    return (getauxval(AT_HWCAP2) & HAS_BF16) != 0;
}

const char *strait_bf16_note(void) {
    return NULL;
}

const struct strait_bf16_units strait_bf16_units[] = {
    {.name = "bfmmla",
     .is_supported = has_bf16,
     .takes = strait_bf16_takes,
     .multiply = strait_bf16_multiply_arm,
     .attend = strait_bf16_attend_arm,
     .attend_back = strait_bf16_attend_back_arm},
    {0},
};
