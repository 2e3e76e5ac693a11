/* connections.h - which connections of a daemon wait for a request, so that those that only occupy
 * a place can be closed for others.
 *
 * A connection is idle until its request has arrived whole and is being answered, and again
 * afterwards. When there are more connections than there is capacity for, the one that has been
 * idle longest is closed: whoever opens many and sends nothing, or sends slowly, loses them first.
 * Only the daemon's thread uses it. */
#pragma once

#include <microhttpd.h>

/* Zeroed is empty. Must not move while the daemon runs. */
struct strait_connections {
    struct strait_connection *first, *last; // the idle ones, longest first
    unsigned n, most;                       // all; at which no place is left
};

/* The daemon's MHD_NotifyConnectionCallback; its user is a strait_connections. */
void strait_connections_notify(void *user, struct MHD_Connection *connection, void **context,
                               enum MHD_ConnectionNotificationCode what);
/* The request of a connection is being answered, or has been. */
void strait_connections_begin(struct MHD_Connection *connection);
void strait_connections_end(struct MHD_Connection *connection);
