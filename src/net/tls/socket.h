/* socket.h - the options and measurements of a TCP socket that libuv does not offer. Linux. */
#pragma once

#include "net/core/stats.h"

/* Small messages leave at once; unsent bytes stay with us, where priorities are still decided;
 * unacknowledged bytes for longer than `dead_ms` end the connection. With `is_far`, BBR if the
 * system allows it. None of these can fail in a way worth stopping for. */
void strait_socket_tune(int fd, int peer_timeout_ms, int is_far);

/* Whether a socket may use BBR here. */
int strait_socket_can_bbr(void);

/* TCP streams of a link: as many as asked for; where that is 0, one with BBR and a few without. */
int strait_socket_streams(int asked);

/* Adds this socket's share to n_streams, tcp_rtt_s (a sum), delivery_bps and retransmits. */
void strait_socket_measure(int fd, strait_link_stats *stats);
