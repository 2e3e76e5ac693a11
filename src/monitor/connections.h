/* connections.h - which connections of a daemon wait for a request, so that those that only occupy
 * a place can be closed.
 *
 * A connection is idle until its request has arrived whole and is being answered, and again
 * afterwards. When there are more connections than there is capacity for, the one that has been
 * idle longest is closed: whoever opens many and sends nothing, or sends slowly, loses them first.
 * The header of a request has a deadline as a whole, which bytes that trickle in do not extend. */
#pragma once

#include "base/error.h"

#include <microhttpd.h>
#include <pthread.h>

/* Must not move while the daemon runs. */
struct strait_connections {
    pthread_mutex_t lock;
    int has_lock;
    double header_s;                        // that the header of a request may take
    struct strait_connection *first, *last; // the idle ones, longest first
    unsigned n, most;                       // all; at which no place is left
};

/* `all` is zeroed. fini may be called without init, once the daemon has stopped. */
strait_err strait_connections_init(struct strait_connections *all, unsigned most, double header_s);
void strait_connections_fini(struct strait_connections *all);

/* The daemon's MHD_NotifyConnectionCallback; its user is a strait_connections. */
void strait_connections_notify(void *user, struct MHD_Connection *connection, void **context,
                               enum MHD_ConnectionNotificationCode what);
/* The header of a request has arrived; its body may take longer. */
void strait_connections_header(struct MHD_Connection *connection);
/* The request of a connection is being answered, or has been. */
void strait_connections_begin(struct MHD_Connection *connection);
void strait_connections_end(struct MHD_Connection *connection);
/* Closes the connections whose header did not arrive in time. To be called now and then, by any
 * thread; the others belong to the daemon's. */
void strait_connections_expire(struct strait_connections *all);
