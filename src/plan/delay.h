/* delay.h - what jitter and loss add to the delay of a link, on average.
 *
 * A message crosses in pieces that are `piece_s` apart on the wire; the message before it started
 * `message_s` earlier. Each piece is late by a jitter, uniform in [0, jitter_s), and by one round
 * trip for each time that one of its packets is lost and sent again. Pieces are delivered in order:
 * a late piece delays all pieces after it, so a message is as late as the latest of its own pieces
 * and of earlier ones, less the time that passed since those were sent. net/emulate/emulate.h does
 * the same to real bytes. Neither lowers the bandwidth of the link. */
#pragma once

typedef struct strait_delay_spec {
    double delay_s, jitter_s; // one way
    double loss;              // share of packets, 0 <= loss < 1
    int n_pieces;             // per message, at least 1
    double piece_packets;     // packets per piece
    double piece_s;           // time on the wire; 0: the bandwidth is unlimited
    double message_s;         // from the start of one message to the next; 0: unknown
} strait_delay_spec;

/* The expected time in seconds, beyond delay_s, until the last piece has arrived. */
double strait_delay_extra(const strait_delay_spec *spec);
