/* tap.c - a TCP proxy that injects faults: tap LISTEN=TARGET ...
 *
 * Link i (from 1) forwards bytes between clients of the i-th LISTEN and its TARGET, both numeric
 * IPv4 address:port. Prints "up", then executes commands from standard input until it ends:
 *
 *   cut I MS      resets connections of link I, and new ones, for MS milliseconds
 *   hold I MS     forwards nothing and keeps the connections open
 *   mute I MS     the same for what the target sends; what clients send is forwarded
 *   half I MS     resets the connections to the target; clients notice only when the fault ends
 *   back I MS     resets the connections to the clients; the target notices only when it ends
 *   slow I MS D   delays every byte by D ms
 *   record I FILE also writes what the next client sends to FILE
 *
 * tap invite INVITE ADDRESS prints the invite with another address. */
#include "base/clock.h"
#include "swarm/invite.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    LINKS = 32,
    CONNECTIONS = 128,
    CHUNK = 16384,
    CHUNKS = 64, // buffered in each direction of a connection
    IDLE_MS = 5
};

struct chunk {
    int64_t due_ns;
    size_t first, end;
    unsigned char data[CHUNK];
};

struct direction {              // from fd[i] to fd[1 - i]
    struct chunk *chunks;       // a ring buffer
    unsigned n_written, n_sent; // chunks so far; the ring holds the difference
};

/* fd[0] is the client's socket, fd[1] the target's; -1: closed. */
struct connection {
    int link, is_used; // index of the link
    int fd[2];
    struct direction directions[2];
    FILE *record;
};

typedef enum fault {
    NO_FAULT,
    CUT,
    HOLD,
    MUTE,
    HALF,
    BACK,
    SLOW
} fault;

static struct link {
    int listener;
    struct sockaddr_in target;
    fault fault;
    int64_t until_ns, delay_ns;
    char record[256];
} links[LINKS];
static int n_links;
static struct connection connections[CONNECTIONS];

static int parse_address(const char *text, size_t n, struct sockaddr_in *out) {
    char host[64];
    const char *colon = memchr(text, ':', n);
    *out = (struct sockaddr_in){.sin_family = AF_INET};
    if (colon == NULL) return 0;
    (void)snprintf(host, sizeof host, "%.*s", (int)(colon - text), text);
    out->sin_port = htons((uint16_t)strtol(colon + 1, NULL, 10));
    return inet_pton(AF_INET, host, &out->sin_addr) == 1;
}

static int open_socket(void) {
    const int on = 1;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0) (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd >= 0) (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static int open_link(const char *text) {
    struct link *link = &links[n_links];
    struct sockaddr_in at;
    const char *equals = strchr(text, '=');
    if (equals == NULL || n_links == LINKS || !parse_address(text, (size_t)(equals - text), &at) ||
        !parse_address(equals + 1, strlen(equals + 1), &link->target))
        return 0;
    link->listener = open_socket();
    n_links++;
    return bind(link->listener, (const struct sockaddr *)&at, sizeof at) == 0 &&
           listen(link->listener, CONNECTIONS) == 0;
}

/* Closes with a reset instead of an orderly end of stream. */
static void reset(int *fd) {
    const struct linger none = {.l_onoff = 1};
    if (*fd < 0) return;
    (void)setsockopt(*fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    (void)close(*fd);
    *fd = -1;
}

static void close_connection(struct connection *c) {
    for (int i = 0; i < 2; i++) {
        reset(&c->fd[i]);
        free(c->directions[i].chunks);
    }
    if (c->record != NULL) (void)fclose(c->record);
    *c = (struct connection){0};
}

static void accept_connection(int at) {
    struct link *link = &links[at];
    struct connection *c = NULL;
    int fd = accept4(link->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    for (int i = 0; i < CONNECTIONS && c == NULL; i++)
        if (!connections[i].is_used) c = &connections[i];
    if (fd < 0) return;
    if (c == NULL || link->fault == CUT) {
        reset(&fd);
        return;
    }
    const int is_half = link->fault == HALF || link->fault == BACK; // no target is connected
    *c = (struct connection){.link = at, .is_used = 1, .fd = {fd, is_half ? -1 : open_socket()}};
    for (int i = 0; i < 2; i++) {
        c->directions[i].chunks = calloc(CHUNKS, sizeof(struct chunk));
        if (c->directions[i].chunks == NULL) abort();
    }
    if (link->record[0] != '\0') c->record = fopen(link->record, "wb");
    link->record[0] = '\0';
    if (!is_half &&
        connect(c->fd[1], (const struct sockaddr *)&link->target, sizeof link->target) != 0 &&
        errno != EINPROGRESS)
        close_connection(c);
}

static int can_read(const struct connection *c, int i) {
    const struct direction *direction = &c->directions[i];
    return c->fd[i] >= 0 && direction->n_written - direction->n_sent < CHUNKS;
}

/* Returns 0 when the connection has ended. */
static int read_some(struct connection *c, int i) {
    struct direction *direction = &c->directions[i];
    struct chunk *chunk = &direction->chunks[direction->n_written % CHUNKS];
    const ssize_t n = read(c->fd[i], chunk->data, sizeof chunk->data);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (n == 0) return 0;
    if (c->fd[1 - i] < 0) return 1; // the other side is closed: drop the bytes
    chunk->first = 0;
    chunk->end = (size_t)n;
    chunk->due_ns = strait_clock_ns() +
                    (links[c->link].fault == SLOW ? links[c->link].delay_ns : 0);
    direction->n_written++;
    if (i == 0 && c->record != NULL) {
        (void)fwrite(chunk->data, 1, (size_t)n, c->record);
        (void)fflush(c->record);
    }
    return 1;
}

/* Forwards the chunks that are due; returns 0 when the connection has ended. */
static int write_some(struct connection *c, int i) {
    struct direction *direction = &c->directions[i];
    while (direction->n_written != direction->n_sent && c->fd[1 - i] >= 0) {
        struct chunk *chunk = &direction->chunks[direction->n_sent % CHUNKS];
        if (chunk->due_ns > strait_clock_ns()) return 1;
        const ssize_t n = send(c->fd[1 - i], chunk->data + chunk->first, chunk->end - chunk->first,
                               MSG_NOSIGNAL);
        if (n < 0) return errno == EAGAIN || errno == EINTR || errno == ENOTCONN;
        chunk->first += (size_t)n;
        if (chunk->first < chunk->end) return 1;
        direction->n_sent++;
    }
    return 1;
}

static void serve_connections(const struct pollfd *fds) {
    for (int k = 0; k < CONNECTIONS; k++) {
        struct connection *c = &connections[k];
        int is_alive = 1;
        if (!c->is_used || links[c->link].fault == HOLD) continue;
        const int n_open = links[c->link].fault == MUTE ? 1 : 2; // directions
        for (int i = 0; i < n_open && is_alive; i++) {
            const struct pollfd *seen = &fds[2 * k + i];
            const int is_ready = seen->fd == c->fd[i] && seen->revents != 0;
            if (c->fd[i] >= 0 && is_ready && can_read(c, i)) is_alive = read_some(c, i);
            if (is_alive) is_alive = write_some(c, i);
        }
        if (!is_alive) close_connection(c);
    }
}

/* Changes the fault of a link and resets the connections that the change affects. */
static void set_fault(int at, fault now) {
    const int was_half = links[at].fault == HALF || links[at].fault == BACK;
    links[at].fault = now;
    for (int k = 0; k < CONNECTIONS; k++) {
        struct connection *c = &connections[k];
        if (!c->is_used || c->link != at) continue;
        if (now == CUT || was_half) close_connection(c);
        if (now == HALF) reset(&c->fd[1]);
        if (now == BACK) reset(&c->fd[0]);
    }
}

static void execute(const char *command) {
    static const char *const names[] = {"none", "cut", "hold", "mute", "half", "back", "slow"};
    const size_t n = strcspn(command, " ");
    char *end = NULL;
    const long number = strtol(command + n, &end, 10);
    if (number < 1 || number > n_links) {
        fprintf(stderr, "tap: unknown command '%s'\n", command);
        return;
    }
    struct link *link = &links[number - 1];
    if (strncmp(command, "record ", 7) == 0) {
        (void)snprintf(link->record, sizeof link->record, "%s", end + strspn(end, " "));
        return;
    }
    link->until_ns = strait_clock_ns() + strtoll(end, &end, 10) * 1000000;
    link->delay_ns = strtoll(end, NULL, 10) * 1000000;
    for (int i = NO_FAULT; i <= SLOW; i++)
        if (strlen(names[i]) == n && strncmp(command, names[i], n) == 0)
            set_fault((int)number - 1, (fault)i);
}

/* Returns 0 at the end of standard input. */
static int read_commands(void) {
    static char text[512];
    static size_t n;
    const ssize_t got = read(STDIN_FILENO, text + n, sizeof text - n - 1);
    if (got <= 0) return 0;
    n += (size_t)got;
    text[n] = '\0';
    for (char *end = strchr(text, '\n'); end != NULL; end = strchr(text, '\n')) {
        *end = '\0';
        execute(text);
        n -= (size_t)(end + 1 - text);
        memmove(text, end + 1, n + 1);
    }
    return 1;
}

static void run(void) {
    static struct pollfd fds[2 * CONNECTIONS + LINKS + 1];
    for (;;) {
        for (int k = 0; k < 2 * CONNECTIONS; k++) {
            const struct connection *c = &connections[k / 2];
            const fault held = links[c->link].fault;
            const int is_held = held == HOLD || (held == MUTE && k % 2 == 1);
            const int listens = c->is_used && !is_held && can_read(c, k % 2);
            fds[k] = (struct pollfd){.fd = listens ? c->fd[k % 2] : -1, .events = POLLIN};
        }
        for (int i = 0; i < n_links; i++)
            fds[2 * CONNECTIONS + i] = (struct pollfd){
                .fd = links[i].fault == HOLD ? -1 : links[i].listener, .events = POLLIN};
        fds[2 * CONNECTIONS + n_links] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
        (void)poll(fds, 2UL * CONNECTIONS + (nfds_t)n_links + 1, IDLE_MS);
        for (int i = 0; i < n_links; i++) {
            if (links[i].fault != NO_FAULT && strait_clock_ns() > links[i].until_ns)
                set_fault(i, NO_FAULT);
            if (fds[2 * CONNECTIONS + i].revents != 0) accept_connection(i);
        }
        serve_connections(fds);
        if (fds[2 * CONNECTIONS + n_links].revents != 0 && !read_commands()) return;
    }
}

static int readdress(const char *text, const char *address) {
    strait_invite invite;
    char line[STRAIT_INVITE_TEXT];
    if (strait_invite_parse(text, &invite) != STRAIT_OK) return 1;
    (void)snprintf(invite.address, sizeof invite.address, "%s", address);
    if (strait_invite_format(&invite, line) != STRAIT_OK) return 1;
    puts(line);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "invite") == 0) return readdress(argv[2], argv[3]);
    for (int i = 1; i < argc; i++) {
        if (open_link(argv[i])) continue;
        perror(argv[i]);
        return 1;
    }
    puts("up");
    (void)fflush(stdout);
    run();
    return 0;
}
