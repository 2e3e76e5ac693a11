#include "monitor/connections.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <sys/socket.h>

enum {
    SEND_BYTES = 64 << 10 // that the kernel may hold for a connection
};

struct strait_connection {
    struct strait_connections *all;
    struct strait_connection *next, *prev; // of the idle ones
    double since;                          // when it became idle
    int fd, is_idle;
    int has_header; // of the request that it waits for
};

static void append(struct strait_connection *c) {
    struct strait_connections *all = c->all;
    c->is_idle = 1;
    c->has_header = 0;
    c->since = strait_clock_seconds();
    c->next = NULL;
    c->prev = all->last;
    if (all->last != NULL)
        all->last->next = c;
    else
        all->first = c;
    all->last = c;
}

static void take_out(struct strait_connection *c) {
    struct strait_connections *all = c->all;
    if (!c->is_idle) return;
    c->is_idle = 0;
    if (c->next != NULL)
        c->next->prev = c->prev;
    else
        all->last = c->prev;
    if (c->prev != NULL)
        c->prev->next = c->next;
    else
        all->first = c->next;
}

/* The daemon then reads the end of the stream and closes the socket. It tells us before, so that
 * under the lock the number is that of this socket. */
static void evict(struct strait_connection *c) {
    take_out(c);
    (void)shutdown(c->fd, SHUT_RDWR);
}

strait_err strait_connections_init(struct strait_connections *all, unsigned most, double header_s) {
    if (pthread_mutex_init(&all->lock, NULL) != 0)
        return STRAIT_FAIL(STRAIT_ENOMEM, "a lock for connections");
    all->has_lock = 1;
    all->most = most;
    all->header_s = header_s;
    return STRAIT_OK;
}

void strait_connections_fini(struct strait_connections *all) {
    if (all->has_lock) (void)pthread_mutex_destroy(&all->lock);
    all->has_lock = 0;
}

/* The idle ones are in the order of the times since when they are. */
void strait_connections_expire(struct strait_connections *all) {
    const double before = strait_clock_seconds() - all->header_s;
    (void)pthread_mutex_lock(&all->lock);
    for (struct strait_connection *c = all->first, *next = NULL; c != NULL && c->since < before;
         c = next) {
        next = c->next;
        if (!c->has_header) evict(c);
    }
    (void)pthread_mutex_unlock(&all->lock);
}

/* By default the kernel may hold megabytes for a reader that does not read. */
static void open_connection(struct strait_connections *all, int fd, void **context) {
    const int bytes = SEND_BYTES;
    struct strait_connection *c = NULL;
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    if (strait_alloc(1, sizeof *c, "connection", (void **)&c) != STRAIT_OK) return;
    c->all = all;
    c->fd = fd;
    (void)pthread_mutex_lock(&all->lock);
    if (++all->n > all->most && all->first != NULL) evict(all->first);
    append(c);
    (void)pthread_mutex_unlock(&all->lock);
    *context = c;
}

void strait_connections_notify(void *user, struct MHD_Connection *connection, void **context,
                               enum MHD_ConnectionNotificationCode what) {
    struct strait_connections *all = user;
    struct strait_connection *c = *context;
    const union MHD_ConnectionInfo *info = NULL;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        if (info != NULL) open_connection(all, info->connect_fd, context);
    } else if (c != NULL) {
        (void)pthread_mutex_lock(&all->lock);
        take_out(c);
        all->n--;
        (void)pthread_mutex_unlock(&all->lock);
        strait_alloc_free(c);
        *context = NULL;
    }
}

/* NULL where there was no memory for it: it is then never closed for others. */
static struct strait_connection *find(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(
        connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info != NULL ? info->socket_context : NULL;
}

void strait_connections_header(struct MHD_Connection *connection) {
    struct strait_connection *c = find(connection);
    if (c == NULL) return;
    (void)pthread_mutex_lock(&c->all->lock);
    c->has_header = 1;
    (void)pthread_mutex_unlock(&c->all->lock);
}

void strait_connections_begin(struct MHD_Connection *connection) {
    struct strait_connection *c = find(connection);
    if (c == NULL) return;
    (void)pthread_mutex_lock(&c->all->lock);
    take_out(c);
    (void)pthread_mutex_unlock(&c->all->lock);
}

void strait_connections_end(struct MHD_Connection *connection) {
    struct strait_connection *c = find(connection);
    if (c == NULL) return;
    (void)pthread_mutex_lock(&c->all->lock);
    if (!c->is_idle) append(c);
    (void)pthread_mutex_unlock(&c->all->lock);
}
