/* emulate.h - emulates a slow link: computes when bytes arrive at the other end.
 *
 * Each sender of a link has an emulator for its own direction, so links are full duplex. Bytes that
 * are ready at time t wait until the wire is free, take (bytes + headers) * 8 / rate to be sent,
 * and arrive `delay` later, plus a jitter that never reorders. Headers are those of TCP over IPv4
 * on Ethernet: 66 bytes per 1448.
 *
 * Loss is emulated as TCP shows it: a lost packet is sent again one round trip later, and
 * everything behind it waits, since TCP delivers in order. The rate is not lowered, as under BBR.
 *
 * A drop is a cable that is pulled: from then on nothing arrives, and neither side is told. Pure
 * functions of their arguments: no clock is read, and the random numbers depend only on the seed.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
    STRAIT_PACKET_PAYLOAD = 1448, // 1500 less 20 of IPv4, 20 of TCP, 12 of its timestamps
    STRAIT_PACKET_HEADERS = 66    // those and 14 of Ethernet
};

typedef struct strait_emulate_spec {
    double rate_bps;             // bits per second; 0: unlimited
    int64_t delay_ns, jitter_ns; // in one direction; jitter is uniform in [0, jitter_ns)
    double loss;                 // fraction of packets lost, 0 <= loss < 1
    int64_t drop_after_ns;       // nothing arrives after this time; 0: never
    uint64_t drop_after_bytes;   // nothing arrives after so many bytes; 0: never
    uint64_t seed;               // of jitter and loss
} strait_emulate_spec;

struct strait_emulate {
    strait_emulate_spec spec;
    int64_t start_ns;   // when the link began; drop_after_ns counts from here
    int64_t free_ns;    // when the wire will have sent all it was given
    int64_t due_ns;     // when the latest bytes arrive
    uint64_t n_bytes;   // so far
    uint64_t n_packets; // so far; also the counter of the random numbers
};

/* Whether `spec` changes anything. */
int strait_emulate_is_on(const strait_emulate_spec *spec);
void strait_emulate_init(struct strait_emulate *e, const strait_emulate_spec *spec, int64_t now_ns);

/* Sends `bytes` that were ready at `ready_ns`; returns when they arrive, INT64_MAX after a drop. */
int64_t strait_emulate_send(struct strait_emulate *e, int64_t ready_ns, size_t bytes);

/* When the sender should pass on more bytes: early enough that the wire is never idle, late enough
 * that a more urgent message can still overtake. INT64_MIN without a rate. */
int64_t strait_emulate_next_send_ns(const struct strait_emulate *e);

/* An upper bound of the bytes in flight at once; at least 256 KiB. */
size_t strait_emulate_in_flight(const strait_emulate_spec *spec);
