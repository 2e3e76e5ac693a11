/* bf16_units_none.c - a processor without bf16 instructions that this build has code for: products
 * are converted to f32. */
#include "backend/cpu/bf16_product.h"

const struct strait_bf16_units strait_bf16_units[] = {{0}};

const char *strait_bf16_note(void) {
    return NULL;
}
