/* emulate.c - see emulate.h for the model. */
#include "net/emulate/emulate.h"

#include "base/rng/rng.h"

enum {
    LEAD_BYTES = 32 * 1024, // two TLS records ahead keep the wire busy
    LEAD_NS = 10 * 1000000, // or this much time, if that is more: timers and threads are late
    PORTION_NS = 4 * 1000000,
    PORTION_MIN = 2 * STRAIT_PACKET_PAYLOAD,
    SMALLEST_FLIGHT = 256 * 1024,
    LARGEST_FLIGHT = 64 * 1024 * 1024
};

int strait_emulate_is_on(const strait_emulate_spec *spec) {
    return spec->rate_bps > 0 || spec->up_bps > 0 || spec->down_bps > 0 || spec->delay_ns > 0 ||
           spec->jitter_ns > 0 || spec->loss > 0 || spec->drop_after_ns > 0 ||
           spec->drop_after_bytes > 0;
}

void strait_emulate_init(struct strait_emulate *e, const strait_emulate_spec *spec,
                         struct strait_emulate_home *home, int64_t now_ns) {
    *e = (struct strait_emulate){
        .spec = *spec, .home = home, .start_ns = now_ns, .free_ns = now_ns};
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

static uint64_t packets_of(size_t bytes) {
    return (bytes + STRAIT_PACKET_PAYLOAD - 1) / STRAIT_PACKET_PAYLOAD;
}

/* Occupies a wire with `on_wire` bytes that are ready at `ready_ns`; returns when it is free again.
 */
static int64_t pass(struct strait_emulate_wire *wire, double rate_bps, int64_t ready_ns,
                    double on_wire) {
    if (wire->free_ns < ready_ns) wire->free_ns = ready_ns; // it was idle
    wire->free_ns += (int64_t)(on_wire * 8e9 / rate_bps);
    return wire->free_ns;
}

static double with_headers(size_t bytes) {
    return (double)bytes + (double)(packets_of(bytes) * STRAIT_PACKET_HEADERS);
}

/* TCP acknowledges every second packet, by headers alone. */
static double acknowledgements(size_t bytes) {
    return (double)bytes / (2 * STRAIT_PACKET_PAYLOAD) * STRAIT_PACKET_HEADERS;
}

int64_t strait_emulate_receive(struct strait_emulate *e, int64_t now_ns, size_t bytes) {
    const strait_emulate_spec *s = &e->spec;
    if (s->up_bps > 0) (void)pass(&e->home->up, s->up_bps, now_ns, acknowledgements(bytes));
    if (s->down_bps <= 0) return now_ns;
    return pass(&e->home->down, s->down_bps, now_ns, with_headers(bytes));
}

int64_t strait_emulate_send(struct strait_emulate *e, int64_t ready_ns, size_t bytes) {
    const strait_emulate_spec *s = &e->spec;
    const uint64_t n_packets = packets_of(bytes);
    e->n_bytes += bytes;
    if (is_dropped(e, ready_ns)) return INT64_MAX;

    struct strait_emulate_wire own = {.free_ns = e->free_ns};
    if (own.free_ns < ready_ns) own.free_ns = ready_ns;
    if (s->rate_bps > 0) (void)pass(&own, s->rate_bps, ready_ns, with_headers(bytes));
    e->free_ns = own.free_ns;
    if (s->up_bps > 0) { // the narrower of the two decides
        const int64_t left_ns = pass(&e->home->up, s->up_bps, ready_ns, with_headers(bytes));
        if (left_ns > e->free_ns) e->free_ns = left_ns;
    }
    if (s->down_bps > 0) (void)pass(&e->home->down, s->down_bps, ready_ns, acknowledgements(bytes));
    int64_t due = e->free_ns + s->delay_ns;
    if (s->jitter_ns > 0)
        due += (int64_t)((double)s->jitter_ns * draw(e, "emulate jitter", e->n_packets));
    if (s->loss > 0) due += repair_ns(e, n_packets);
    e->n_packets += n_packets;
    if (due > e->due_ns) e->due_ns = due; // in order: later bytes never arrive earlier
    return e->due_ns;
}

/* The lowest of the rates of a sender; 0: it has none. */
static double sending_bps(const strait_emulate_spec *spec) {
    if (spec->rate_bps <= 0) return spec->up_bps;
    return spec->up_bps > 0 && spec->up_bps < spec->rate_bps ? spec->up_bps : spec->rate_bps;
}

int64_t strait_emulate_next_send_ns(const struct strait_emulate *e, int64_t left_ns) {
    const double rate_bps = sending_bps(&e->spec);
    if (rate_bps <= 0) return INT64_MIN;
    const int64_t lead = (int64_t)(LEAD_BYTES * 8e9 / rate_bps);
    return left_ns - (lead > LEAD_NS ? lead : LEAD_NS);
}

size_t strait_emulate_portion(double rate_bps, size_t bytes) {
    const double portion = rate_bps / 8e9 * PORTION_NS;
    const size_t most = portion > PORTION_MIN ? (size_t)portion : PORTION_MIN;
    return rate_bps > 0 && bytes > most ? most : bytes;
}

size_t strait_emulate_in_flight(const strait_emulate_spec *spec) {
    const double rate_bps = sending_bps(spec);
    if (!strait_emulate_is_on(spec)) return SMALLEST_FLIGHT;
    const int64_t n_trips = spec->loss > 0 ? 3 : 1; // bytes behind a retransmission wait in flight
    const double seconds = (double)(2 * n_trips * spec->delay_ns + spec->jitter_ns) * 1e-9 +
                           2e-9 * LEAD_NS;
    const double bytes = rate_bps > 0 ? rate_bps / 8 * seconds : (double)(1 << 24);
    if (bytes > (double)LARGEST_FLIGHT) return LARGEST_FLIGHT;
    return SMALLEST_FLIGHT + (size_t)bytes;
}
