#include "monitor/connections.h"

#include "base/alloc.h"

#include <sys/socket.h>

enum {
    SEND_BYTES = 64 << 10 // that the kernel may hold for a connection
};

struct strait_connection {
    struct strait_connections *all;
    struct strait_connection *next, *prev; // of the idle ones
    int fd, is_idle;
};

static void append(struct strait_connection *c) {
    struct strait_connections *all = c->all;
    c->is_idle = 1;
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

/* The daemon then reads the end of the stream and closes the socket. */
static void evict(struct strait_connections *all) {
    struct strait_connection *c = all->first;
    if (c == NULL) return;
    take_out(c);
    (void)shutdown(c->fd, SHUT_RDWR);
}

/* By default the kernel may hold megabytes for a reader that does not read. */
static void open_connection(struct strait_connections *all, int fd, void **context) {
    const int bytes = SEND_BYTES;
    struct strait_connection *c = NULL;
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    if (strait_alloc(1, sizeof *c, "connection", (void **)&c) != STRAIT_OK) return;
    if (++all->n > all->most) evict(all);
    c->all = all;
    c->fd = fd;
    append(c);
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
        take_out(c);
        all->n--;
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

void strait_connections_begin(struct MHD_Connection *connection) {
    struct strait_connection *c = find(connection);
    if (c != NULL) take_out(c);
}

void strait_connections_end(struct MHD_Connection *connection) {
    struct strait_connection *c = find(connection);
    if (c != NULL && !c->is_idle) append(c);
}
