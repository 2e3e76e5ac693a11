/* emulate.c - see emulate.h for the model. */
#include "net/emulate/emulate.h"

#include "base/rng/rng.h"

enum {
    LEAD_BYTES = 32 * 1024, // two TLS records ahead keep the wire busy
    LEAD_NS = 10 * 1000000, // or this much time, if that is more: timers and threads are late
    SMALLEST_FLIGHT = 256 * 1024,
    LARGEST_FLIGHT = 64 * 1024 * 1024
};

int strait_emulate_is_on(const strait_emulate_spec *spec) {
    return spec->rate_bps > 0 || spec->delay_ns > 0 || spec->jitter_ns > 0 || spec->loss > 0 ||
           spec->drop_after_ns > 0 || spec->drop_after_bytes > 0;
}

void strait_emulate_init(struct strait_emulate *e, const strait_emulate_spec *spec,
                         int64_t now_ns) {
    *e = (struct strait_emulate){.spec = *spec, .start_ns = now_ns, .free_ns = now_ns};
}

static int is_dropped(const struct strait_emulate *e, int64_t ready_ns) {
    const strait_emulate_spec *s = &e->spec;
    if (s->drop_after_ns > 0 && ready_ns - e->start_ns >= s->drop_after_ns) return 1;
    return s->drop_after_bytes > 0 && e->n_bytes > s->drop_after_bytes;
}

/* Numbered by packet, so that a run with the same seed sees the same losses and jitter. */
static float draw(const struct strait_emulate *e, const char *what, uint64_t counter) {
    const strait_rng rng = {.seed = e->spec.seed, .stream = strait_rng_stream(what)};
    return strait_rng_uniform(rng, counter);
}

/* Computes how long retransmissions delay a flight of packets. All losses of a flight are repaired
 * in one round trip, but a retransmission may be lost too; 16 in a row is practically impossible.
 */
static int64_t repair_ns(const struct strait_emulate *e, uint64_t n_packets) {
    int n_trips = 0;
    for (uint64_t i = 0; i < n_packets && n_trips == 0; i++)
        if (draw(e, "emulate loss", e->n_packets + i) < (float)e->spec.loss) n_trips = 1;
    while (n_trips > 0 && n_trips < 16 &&
           draw(e, "emulate repair", e->n_packets * 16 + (uint64_t)n_trips) < (float)e->spec.loss)
        n_trips++;
    return (int64_t)n_trips * 2 * (e->spec.delay_ns + e->spec.jitter_ns / 2);
}

int64_t strait_emulate_send(struct strait_emulate *e, int64_t ready_ns, size_t bytes) {
    const strait_emulate_spec *s = &e->spec;
    const uint64_t n_packets = (bytes + STRAIT_PACKET_PAYLOAD - 1) / STRAIT_PACKET_PAYLOAD;
    const double wire_bytes = (double)bytes + (double)(n_packets * STRAIT_PACKET_HEADERS);
    e->n_bytes += bytes;
    if (is_dropped(e, ready_ns)) return INT64_MAX;

    if (e->free_ns < ready_ns) e->free_ns = ready_ns; // the wire was idle
    if (s->rate_bps > 0) e->free_ns += (int64_t)(wire_bytes * 8e9 / s->rate_bps);
    int64_t due = e->free_ns + s->delay_ns;
    if (s->jitter_ns > 0)
        due += (int64_t)((double)s->jitter_ns * draw(e, "emulate jitter", e->n_packets));
    if (s->loss > 0) due += repair_ns(e, n_packets);
    e->n_packets += n_packets;
    if (due > e->due_ns) e->due_ns = due; // in order: later bytes never arrive earlier
    return e->due_ns;
}

int64_t strait_emulate_next_send_ns(const struct strait_emulate *e) {
    if (e->spec.rate_bps <= 0) return INT64_MIN;
    const int64_t lead = (int64_t)(LEAD_BYTES * 8e9 / e->spec.rate_bps);
    return e->free_ns - (lead > LEAD_NS ? lead : LEAD_NS);
}

size_t strait_emulate_in_flight(const strait_emulate_spec *spec) {
    if (!strait_emulate_is_on(spec)) return SMALLEST_FLIGHT;
    const int64_t n_trips = spec->loss > 0 ? 3 : 1; // bytes behind a retransmission wait in flight
    const double seconds = (double)(2 * n_trips * spec->delay_ns + spec->jitter_ns) * 1e-9 +
                           2e-9 * LEAD_NS;
    const double bytes = spec->rate_bps > 0 ? spec->rate_bps / 8 * seconds : (double)(1 << 24);
    if (bytes > (double)LARGEST_FLIGHT) return LARGEST_FLIGHT;
    return SMALLEST_FLIGHT + (size_t)bytes;
}
