/* meter.h - measures how much crossings lose, on the device.
 *
 * Kernels that pack or unpack add three numbers per row to stats: squared error, squared size, and
 * how many values were not finite. Rows are summed only when someone reads the meter, so that a
 * crossing needs no reduction over the device. */
#pragma once

#include "backend/backend.h"
#include "backend/slab.h"

enum {
    STRAIT_METER_PACK,   // error of packing; values that were not finite before
    STRAIT_METER_LEAK,   // subspace: what of the stream the code cannot hold
    STRAIT_METER_UNPACK, // only the count of values on the wire that were not finite
    STRAIT_METER_KINDS
};

struct strait_meter {
    strait_tensor stats[STRAIT_METER_KINDS]; // [rows x 3], for kernels
    strait_tensor ones;                      // [1 x rows]
    strait_tensor totals;                    // [STRAIT_METER_KINDS x 3]
};

/* Plans the tensors in the slab. `rows` is the most rows that one kernel call measures. */
strait_err strait_meter_plan(struct strait_meter *meter, struct strait_slab *slab, int64_t rows);
/* Writes the constant tensors, once memory is committed. */
strait_err strait_meter_start(struct strait_meter *meter, struct strait_stream *s);

/* Where a kernel adds its measurements of `rows` rows. `which` is one of the kinds above. */
strait_tensor strait_meter_stats(const struct strait_meter *meter, int which, int64_t rows);

/* Reads the three totals of each kind and resets them. Waits for the stream. */
strait_err strait_meter_read(struct strait_meter *meter, struct strait_stream *s,
                             float out[STRAIT_METER_KINDS][3]);
