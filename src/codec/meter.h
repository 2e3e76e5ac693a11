/* meter.h - how much crossings lose, added up on the device until someone asks.
 *
 * Kernels that pack or unpack add three numbers a row to stats: squared error, squared size, values
 * that were not finite. The rows are added up when they are read: a crossing pays nothing for it.
 */
#pragma once

#include "backend/backend.h"
#include "backend/slab.h"

enum {
    STRAIT_METER_PACK,
    STRAIT_METER_UNPACK,
    STRAIT_METER_KINDS
};

struct strait_meter {
    strait_tensor stats[STRAIT_METER_KINDS]; // [rows x 3], for kernels
    strait_tensor ones;                      // [1 x rows]
    strait_tensor totals;                    // [STRAIT_METER_KINDS x 3]
};

/* `rows`: the most rows any kernel call will measure. */
strait_err strait_meter_plan(struct strait_meter *meter, struct strait_slab *slab, int64_t rows);
strait_err strait_meter_start(struct strait_meter *meter, struct strait_stream *s);

/* Where a kernel adds its numbers of `rows` rows. */
strait_tensor strait_meter_stats(const struct strait_meter *meter, int which, int64_t rows);

/* The totals, row by row; then sets all to zero. Waits for the stream. */
strait_err strait_meter_read(struct strait_meter *meter, struct strait_stream *s, float out[6]);
