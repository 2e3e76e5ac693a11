/* value_sets_one.c - the table of instruction sets on machines that have only one. */
#include "stage/replicas/value_set.h"

STRAIT_VALUE_DECLARE(plain)

/* The plain version is compiled C without intrinsics. */
static int always(void) {
    return 1;
}

const struct strait_value_set strait_value_sets[] = {
    STRAIT_VALUE_SET(plain, always),
    {0},
};
