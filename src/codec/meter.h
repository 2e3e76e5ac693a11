/* meter.h - how much each crossing loses, added up on the device until someone asks.
 *
 * Kernels that pack or unpack write three numbers a row: squared error, squared size, values that
 * were not finite. The meter adds the rows up; row 0 of totals is for packing, 1 for unpacking. */
#pragma once

#include "backend/backend.h"
#include "backend/slab.h"

struct strait_meter {
    strait_tensor stats;  // [rows x 3], for the kernel
    strait_tensor ones;   // [1 x rows]
    strait_tensor totals; // [2 x 3]
};

enum {
    STRAIT_METER_PACK,
    STRAIT_METER_UNPACK
};

/* `rows`: the most rows any kernel call will measure. */
strait_err strait_meter_plan(struct strait_meter *meter, struct strait_slab *slab, int64_t rows);
strait_err strait_meter_start(struct strait_meter *meter, struct strait_stream *s);

/* Where a kernel puts its numbers for `rows` rows. */
strait_tensor strait_meter_stats(const struct strait_meter *meter, int64_t rows);

/* Adds what the last kernel call put there to the totals of `which`. */
strait_err strait_meter_add(struct strait_meter *meter, struct strait_stream *s, int64_t rows,
                            int which);

/* The totals, row by row; then sets them to zero. Waits for the stream. */
strait_err strait_meter_read(struct strait_meter *meter, struct strait_stream *s, float out[6]);
