#include "swarm/worker/rate_meter.h"

void strait_rate_meter_init(strait_rate_meter *meter, int64_t now_ns, int64_t warm_ns,
                            int64_t slice_ns) {
    *meter = (strait_rate_meter){.began_ns = now_ns, .warm_ns = warm_ns, .slice_ns = slice_ns};
}

static double rate_of(double bytes, int64_t ns) {
    return 8.0 * bytes / ((double)ns * 1e-9);
}

void strait_rate_meter_add(strait_rate_meter *m, double bytes, int64_t now_ns) {
    m->total += bytes;
    m->bytes += bytes;
    if (now_ns < m->warm_ns || m->mark_ns == 0) {
        m->mark_ns = now_ns;
        m->bytes = 0.0;
    } else if (now_ns - m->mark_ns >= m->slice_ns && m->n < STRAIT_RATE_SLICES) {
        m->rates[m->n++] = rate_of(m->bytes, now_ns - m->mark_ns);
        m->mark_ns = now_ns;
        m->bytes = 0.0;
    }
}

static double median(double *values, int n) {
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && values[k - 1] > values[k]; k--) {
            const double larger = values[k - 1];
            values[k - 1] = values[k];
            values[k] = larger;
        }
    return n % 2 == 1 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

double strait_rate_meter_bps(const strait_rate_meter *m, int64_t now_ns) {
    double rates[STRAIT_RATE_SLICES + 1];
    int n = 0;
    for (; n < m->n; n++)
        rates[n] = m->rates[n];
    /* A link that has stalled ends no slice. */
    if (n > 0 && now_ns - m->mark_ns >= 2 * m->slice_ns)
        rates[n++] = rate_of(m->bytes, now_ns - m->mark_ns);
    if (n > 0) return median(rates, n);
    return now_ns > m->began_ns ? rate_of(m->total, now_ns - m->began_ns) : 0.0;
}
