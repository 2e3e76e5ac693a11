/* emulate.h - what a slow link does to bytes, as arithmetic.
 *
 * Each sender of a link has one of these for its own direction, so links are full duplex. Bytes
 * handed over at `ready` wait until the wire is free, take (bytes + headers) * 8 / rate to be put
 * on it, and arrive `delay` later, plus a jitter that never reorders. Headers are those of TCP
 * over IPv4 on Ethernet: 66 bytes for every 1448.
 *
 * Loss is what TCP makes of it: a lost packet is sent again one round trip later, and everything
 * behind it waits, since TCP delivers in order. The rate is not lowered, as under BBR.
 *
 * A cut is a cable pulled: from then on nothing arrives and nobody is told. Pure functions of
 * their arguments; no clock is read. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
    STRAIT_PACKET_PAYLOAD = 1448, // 1500 less 20 of IPv4, 20 of TCP, 12 of its timestamps
    STRAIT_PACKET_HEADERS = 66    // those and 14 of Ethernet
};

typedef struct strait_emulate_spec {
    double rate_bps;             // bits per second; 0 is unlimited
    int64_t delay_ns, jitter_ns; // one way; jitter is uniform in [0, jitter_ns)
    double loss;                 // share of packets, 0 <= loss < 1
    int64_t drop_after_ns;       // 0 is never
    uint64_t drop_after_bytes;   // 0 is never
    uint64_t seed;               // of jitter and loss
} strait_emulate_spec;

struct strait_emulate {
    strait_emulate_spec spec;
    int64_t start_ns;   // when the link began; drop_after_ns counts from here
    int64_t free_ns;    // when the wire has sent all it was given
    int64_t due_ns;     // of the latest bytes
    uint64_t n_bytes;   // so far
    uint64_t n_packets; // so far: the counter of the random numbers
};

int strait_emulate_is_on(const strait_emulate_spec *spec);
void strait_emulate_init(struct strait_emulate *e, const strait_emulate_spec *spec, int64_t now_ns);

/* When `bytes`, ready at `ready_ns`, arrive at the other end; INT64_MAX after a cut. */
int64_t strait_emulate_send(struct strait_emulate *e, int64_t ready_ns, size_t bytes);

/* When the sender should hand over more: early enough that the wire never idles, late enough that
 * a more urgent message can still go first. */
int64_t strait_emulate_next_send_ns(const struct strait_emulate *e);

/* Bytes that can be under way at once, with some to spare; at least 256 KiB. */
size_t strait_emulate_in_flight(const strait_emulate_spec *spec);
