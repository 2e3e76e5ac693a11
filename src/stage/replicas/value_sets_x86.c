/* value_sets_x86.c - the table of instruction sets on x86-64. */
#include "base/x86.h"
#include "stage/replicas/value_set.h"

STRAIT_VALUE_DECLARE(sse2)
STRAIT_VALUE_DECLARE(avx2)
STRAIT_VALUE_DECLARE(avx512)

/* From the oldest to the newest: the last supported one is used. */
const struct strait_value_set strait_value_sets[] = {
    STRAIT_VALUE_SET(sse2, strait_x86_always),
    STRAIT_VALUE_SET(avx2, strait_x86_has_avx2),
    STRAIT_VALUE_SET(avx512, strait_x86_has_avx512),
    {0},
};
