#include "net/meter.h"

strait_meter_spec strait_meter_protocol_nanogpt(void) {
    return (strait_meter_spec){.rate_bps = 200e6, .delay_s = 0.05};
}

double strait_meter_arrive(strait_meter *meter, const strait_meter_spec *spec, double sent_s,
                           double bytes) {
    const double start = meter->free_s > sent_s ? meter->free_s : sent_s;
    const double wire = bytes * 8 / spec->rate_bps;
    const double arrives = start + wire + spec->delay_s;
    meter->free_s = spec->is_pipelined ? start + wire : arrives;
    meter->busy_s += wire;
    meter->bytes += bytes;
    return arrives;
}
