/* socket.h - options and measurements of a TCP socket that libuv does not offer. Linux only. */
#pragma once

#include "net/core/stats.h"

/* Sets the options of a connected socket: small messages are sent at once (no Nagle delay); unsent
 * bytes stay with us, where priorities can still change their order; bytes that stay unacknowledged
 * for longer than `peer_timeout_ms` end the connection. With `is_far`, BBR congestion control if
 * the system allows it. Errors are ignored: without these options a link is only slower. */
void strait_socket_tune(int fd, int peer_timeout_ms, int is_far);

/* Whether this system lets a socket use BBR. */
int strait_socket_can_bbr(void);

/* The number of TCP streams of a link: `asked`, or if that is 0, one with BBR and four without.
 * Loss-based congestion control leaves a long path half empty; several streams make up for it. */
int strait_socket_streams(int asked);

/* Adds this socket's part to n_streams, tcp_rtt_s (a sum), delivery_bps and retransmits. */
void strait_socket_measure(int fd, strait_link_stats *stats);
