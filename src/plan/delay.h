/* delay.h - what jitter and loss add to the delay of a link, on average.
 *
 * A message crosses in pieces, `piece_s` apart on the wire, and others came `message_s` before it.
 * Each piece is late by a jitter that is uniform in [0, jitter_s) and, where one of its packets is
 * lost, by a round trip, or by more where repairs are lost too. Pieces arrive in order: one that is
 * late holds up all behind it, so that a message is as late as the latest of its pieces and of
 * those before, less the time they had. That is what src/net/emulate.h does to bytes; the rate of
 * the link is not lowered. */
#pragma once

typedef struct strait_delay_spec {
    double delay_s, jitter_s; // one way
    double loss;              // share of packets, 0 <= loss < 1
    int n_pieces;             // of a message, at least 1
    double piece_packets;     // packets in a piece
    double piece_s;           // on the wire; 0: it is unlimited
    double message_s;         // from one message to the next
} strait_delay_spec;

/* Seconds beyond delay_s until the last piece has arrived, averaged over chance. */
double strait_delay_extra(const strait_delay_spec *spec);
