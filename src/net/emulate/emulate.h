/* emulate.h - emulates a slow link: computes when bytes arrive at the other end.
 *
 * Each sender of a link has an emulator for its own direction, so links are full duplex. Bytes that
 * are ready at time t wait until the wire is free, take (bytes + headers) * 8 / rate to be sent,
 * and arrive `delay` later, plus a jitter that never reorders. Headers are those of TCP over IPv4
 * on Ethernet: 66 bytes per 1448.
 *
 * A home has one way to the internet and one back, which all links of its worker share: bytes of
 * every link pass the `up` wire of their sender before they cross, and the `down` wire of their
 * receiver after that, in the order in which they come there. Each stream passes on more bytes when
 * its own are about to leave the wire, so busy streams have equal shares, as TCP connections do.
 * Acknowledgements of every second packet take their part of the other direction.
 *
 * Loss is emulated as TCP shows it: a lost packet is sent again one round trip later, and
 * everything behind it waits, since TCP delivers in order. The rate is not lowered, as under BBR.
 *
 * A drop is a cable that is pulled: from then on nothing arrives, and neither side is told. Pure
 * functions of their arguments: no clock is read, and the random numbers depend only on the seed.
 * One thread uses the links that share a wire. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
    STRAIT_PACKET_PAYLOAD = 1448, // 1500 less 20 of IPv4, 20 of TCP, 12 of its timestamps
    STRAIT_PACKET_HEADERS = 66    // those and 14 of Ethernet
};

typedef struct strait_emulate_spec {
    double rate_bps;             // bits per second of this link; 0: unlimited
    double up_bps, down_bps;     // of all links of this worker together; 0: unlimited
    int64_t delay_ns, jitter_ns; // in one direction; jitter is uniform in [0, jitter_ns)
    double loss;                 // fraction of packets lost, 0 <= loss < 1
    int64_t drop_after_ns;       // nothing arrives after this time; 0: never
    uint64_t drop_after_bytes;   // nothing arrives after so many bytes; 0: never
    uint64_t seed;               // of jitter and loss
} strait_emulate_spec;

/* One direction between a home and the internet. Zeroed: idle. */
struct strait_emulate_wire {
    int64_t free_ns; // when it will have passed on all it was given
};

/* Both directions, shared by all links of a worker. Zeroed: idle. */
struct strait_emulate_home {
    struct strait_emulate_wire up, down;
};

struct strait_emulate {
    strait_emulate_spec spec;
    struct strait_emulate_home *home; // borrowed
    int64_t start_ns;                 // when the link began; drop_after_ns counts from here
    int64_t free_ns;                  // when the wires will have sent all that this link gave them
    int64_t due_ns;                   // when the latest bytes arrive
    uint64_t n_bytes;                 // so far
    uint64_t n_packets;               // so far; also the counter of the random numbers
};

/* Whether `spec` changes anything. */
int strait_emulate_is_on(const strait_emulate_spec *spec);
/* `home` is used where the spec has rates of a home, and may be NULL where it has none. */
void strait_emulate_init(struct strait_emulate *e, const strait_emulate_spec *spec,
                         struct strait_emulate_home *home, int64_t now_ns);

/* Sends `bytes` that were ready at `ready_ns`; returns when they arrive, INT64_MAX after a drop. */
int64_t strait_emulate_send(struct strait_emulate *e, int64_t ready_ns, size_t bytes);

/* When a stream should pass on more bytes whose latest ones leave the wire at `left_ns` (free_ns
 * after it sent them): early enough that the wire is never idle, late enough that a more urgent
 * message can still overtake. INT64_MIN without a rate. */
int64_t strait_emulate_next_send_ns(const struct strait_emulate *e, int64_t left_ns);

/* Receives `bytes` that have crossed the link; returns when the last of them has entered the home.
 */
int64_t strait_emulate_receive(struct strait_emulate *e, int64_t now_ns, size_t bytes);

/* How many of `bytes` to read at once from a wire of this rate, so that they are not early by more
 * than a few milliseconds. */
size_t strait_emulate_portion(double rate_bps, size_t bytes);

/* An upper bound of the bytes in flight at once; at least 256 KiB. */
size_t strait_emulate_in_flight(const strait_emulate_spec *spec);
