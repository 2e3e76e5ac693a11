/* rope.h - rotary position embedding: the angles by which positions rotate queries and keys. */
#pragma once

#include "model/shape.h"

/* Fills cos and sin, [context x head_dim / 2] each, in host memory. Computed in double precision,
 * once per stage; the kernels only read the tables. */
void strait_rope_tables(const strait_shape *shape, float *cos_table, float *sin_table);
