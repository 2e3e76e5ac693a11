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

enum {
    STRAIT_METER_BANKS = 2 // where crossings of two steps alternate, each step has its own
};

struct strait_meter {
    strait_tensor stats[STRAIT_METER_BANKS][STRAIT_METER_KINDS]; // [rows x 3], for kernels
    int bank;                                                    // that is added to and read
    strait_tensor ones;                                          // [1 x rows]
    strait_tensor totals;                                        // [STRAIT_METER_KINDS x 3]
};

/* Plans the tensors in the slab. `rows` is the most rows that one kernel call measures. */
strait_err strait_meter_plan(struct strait_meter *meter, struct strait_slab *slab, int64_t rows);
/* Writes the constant tensors, once memory is committed. */
strait_err strait_meter_start(struct strait_meter *meter, struct strait_stream *s);

/* From now on crossings are counted in another bank, 0 or 1. The first is 0. */
void strait_meter_select(struct strait_meter *meter, int bank);

/* Where a kernel adds its measurements of `rows` rows. `which` is one of the kinds above. */
strait_tensor strait_meter_stats(const struct strait_meter *meter, int which, int64_t rows);

/* Reads the three totals of each kind, of the selected bank, and resets them. Waits for the stream.
 */
strait_err strait_meter_read(struct strait_meter *meter, struct strait_stream *s,
                             float out[STRAIT_METER_KINDS][3]);
