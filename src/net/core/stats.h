/* stats.h - what one link has carried, counted where the bytes meet the socket. */
#pragma once

#include <stdint.h>

typedef struct strait_link_stats {
    /* Every byte given to or read from the socket: TLS handshake, records, frames, all of it.
     * Headers of TCP and IP are not in it. In process: the bytes of the frames. */
    uint64_t sent_bytes, received_bytes;
    /* Bodies of messages of types from STRAIT_MSG_FIRST on. */
    uint64_t sent_payload, received_payload;
    uint64_t sent_messages, received_messages;
    uint64_t queued_bytes; // bodies that wait for the wire

    /* Round trip of a BEAT and its ECHO, through all queues and any emulation; 0 until measured. */
    double rtt_s, rtt_min_s;

    /* From TCP_INFO, summed or averaged over the streams; 0 where there is no TCP. */
    int n_streams;
    double tcp_rtt_s;
    double delivery_bps; // what the kernel lately saw delivered
    uint64_t retransmits;
    char congestion[16]; // "bbr", "cubic"
} strait_link_stats;

/* A BEAT came back after `ns`; one that no link could have taken is ignored. */
void strait_stats_learn_rtt(strait_link_stats *stats, int64_t ns);

/* Adds the counts, not the measurements. */
void strait_stats_add(strait_link_stats *sum, const strait_link_stats *more);
