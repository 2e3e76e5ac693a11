/* stats.h - traffic counters and round-trip times of one link, counted at the socket. */
#pragma once

#include <stdint.h>

typedef struct strait_link_stats {
    /* Every byte written to or read from the socket: TLS handshake, records and frames. TCP and IP
     * headers are not included. In process: the bytes of the frames. */
    uint64_t sent_bytes, received_bytes;
    /* Bodies of messages of types from STRAIT_MSG_FIRST on. */
    uint64_t sent_payload, received_payload;
    uint64_t received_partial; // of bodies that are still arriving; 0 where they arrive whole
    uint64_t sent_messages, received_messages;
    uint64_t queued_bytes; // bodies that wait to be sent

    /* Round trip from a PING to its PONG, through all queues and any emulation; 0 until measured.
     * rtt_s is an exponential average, rtt_min_s the smallest so far. */
    double rtt_s, rtt_min_s;

    /* From TCP_INFO, summed or averaged over the streams; 0 for transports without TCP. */
    int n_streams;
    double tcp_rtt_s;
    double delivery_bps; // the kernel's recent estimate of what reached the peer
    uint64_t retransmits;
    char congestion[16]; // congestion control algorithm: "bbr", "cubic"
} strait_link_stats;

/* Records the round trip of one PING. A time that is not positive or exceeds an hour is ignored:
 * the peer echoes our clock and could have changed it. */
void strait_stats_add_rtt(strait_link_stats *stats, int64_t ns);

/* Adds the counters of `more` to `sum`; measurements are left alone. */
void strait_stats_add(strait_link_stats *sum, const strait_link_stats *more);
