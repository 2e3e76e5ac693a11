/* rope.h - the angles by which positions turn queries and keys. */
#pragma once

#include "model/shape.h"

/* Fills cos and sin, [context x head_dim / 2] each, on the host. */
void strait_rope_tables(const strait_shape *shape, float *cos_table, float *sin_table);
