/* tap - lines between processes of this machine that can be cut: tap LISTEN=TARGET ...
 *
 * Line i (from 1) passes bytes between whoever connects to the i-th LISTEN and its TARGET, both
 * numeric IPv4 address:port. Prints "up", then obeys lines on standard input, until that ends:
 *
 *   cut I MS      connections of line I are reset, and new ones too, for so long
 *   hold I MS     nothing passes, and nobody is told
 *   half I MS     its targets are hung up on; those who had connected hear nothing of it until then
 *   back I MS     the other way around: the targets hear nothing of it
 *   slow I MS D   every byte comes D ms later
 *   record I FILE what the next connection says to its target goes to FILE as well
 *
 * Or tap invite INVITE ADDRESS: the same invite by another address. */
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
    LINES = 32,
    CALLS = 128,
    CHUNK = 16384,
    CHUNKS = 64, // on their way, in each direction of a call
    IDLE_MS = 5
};

struct chunk {
    int64_t due_ns;
    size_t first, end;
    unsigned char data[CHUNK];
};

struct way {              // from fd[i] to fd[1 - i]
    struct chunk *chunks; // a ring
    unsigned sender, receiver;
};

/* Client and target; -1: hung up. */
struct call {
    int line, is_used;
    int fd[2];
    struct way ways[2];
    FILE *record;
};

typedef enum weather {
    FAIR,
    CUT,
    HOLD,
    HALF,
    BACK,
    SLOW
} weather;

static struct line {
    int listener;
    struct sockaddr_in target;
    weather weather;
    int64_t until_ns, delay_ns;
    char record[256];
} lines[LINES];
static int n_lines;
static struct call calls[CALLS];

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

static int open_line(const char *text) {
    struct line *line = &lines[n_lines];
    struct sockaddr_in at;
    const char *equals = strchr(text, '=');
    if (equals == NULL || n_lines == LINES || !parse_address(text, (size_t)(equals - text), &at) ||
        !parse_address(equals + 1, strlen(equals + 1), &line->target))
        return 0;
    line->listener = open_socket();
    n_lines++;
    return bind(line->listener, (const struct sockaddr *)&at, sizeof at) == 0 &&
           listen(line->listener, CALLS) == 0;
}

/* The other end hears a reset, not an end. */
static void hang_up(int *fd) {
    const struct linger none = {.l_onoff = 1};
    if (*fd < 0) return;
    (void)setsockopt(*fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    (void)close(*fd);
    *fd = -1;
}

static void end_call(struct call *c) {
    for (int i = 0; i < 2; i++) {
        hang_up(&c->fd[i]);
        free(c->ways[i].chunks);
    }
    if (c->record != NULL) (void)fclose(c->record);
    *c = (struct call){0};
}

static void accept_call(int at) {
    struct line *line = &lines[at];
    struct call *c = NULL;
    int fd = accept4(line->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    for (int i = 0; i < CALLS && c == NULL; i++)
        if (!calls[i].is_used) c = &calls[i];
    if (fd < 0) return;
    if (c == NULL || line->weather == CUT) {
        hang_up(&fd);
        return;
    }
    const int is_half = line->weather == HALF || line->weather == BACK; // nobody answers
    *c = (struct call){.line = at, .is_used = 1, .fd = {fd, is_half ? -1 : open_socket()}};
    for (int i = 0; i < 2; i++) {
        c->ways[i].chunks = calloc(CHUNKS, sizeof(struct chunk));
        if (c->ways[i].chunks == NULL) abort();
    }
    if (line->record[0] != '\0') c->record = fopen(line->record, "wb");
    line->record[0] = '\0';
    if (!is_half &&
        connect(c->fd[1], (const struct sockaddr *)&line->target, sizeof line->target) != 0 &&
        errno != EINPROGRESS)
        end_call(c);
}

static int can_read(const struct call *c, int i) {
    const struct way *way = &c->ways[i];
    return c->fd[i] >= 0 && way->sender - way->receiver < CHUNKS;
}

/* 0 when the call is over. */
static int read_some(struct call *c, int i) {
    struct way *way = &c->ways[i];
    struct chunk *chunk = &way->chunks[way->sender % CHUNKS];
    const ssize_t n = read(c->fd[i], chunk->data, sizeof chunk->data);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (n == 0) return 0;
    if (c->fd[1 - i] < 0) return 1; // nobody to pass it to
    chunk->first = 0;
    chunk->end = (size_t)n;
    chunk->due_ns = strait_clock_ns() +
                    (lines[c->line].weather == SLOW ? lines[c->line].delay_ns : 0);
    way->sender++;
    if (i == 0 && c->record != NULL) {
        (void)fwrite(chunk->data, 1, (size_t)n, c->record);
        (void)fflush(c->record);
    }
    return 1;
}

/* What is due goes on; 0 when the call is over. */
static int write_some(struct call *c, int i) {
    struct way *way = &c->ways[i];
    while (way->sender != way->receiver && c->fd[1 - i] >= 0) {
        struct chunk *chunk = &way->chunks[way->receiver % CHUNKS];
        if (chunk->due_ns > strait_clock_ns()) return 1;
        const ssize_t n = send(c->fd[1 - i], chunk->data + chunk->first, chunk->end - chunk->first,
                               MSG_NOSIGNAL);
        if (n < 0) return errno == EAGAIN || errno == EINTR || errno == ENOTCONN;
        chunk->first += (size_t)n;
        if (chunk->first < chunk->end) return 1;
        way->receiver++;
    }
    return 1;
}

static void serve_calls(const struct pollfd *fds) {
    for (int k = 0; k < CALLS; k++) {
        struct call *c = &calls[k];
        int is_alive = 1;
        if (!c->is_used || lines[c->line].weather == HOLD) continue;
        for (int i = 0; i < 2 && is_alive; i++) {
            const struct pollfd *seen = &fds[2 * k + i];
            const int has_come = seen->fd == c->fd[i] && seen->revents != 0;
            if (c->fd[i] >= 0 && has_come && can_read(c, i)) is_alive = read_some(c, i);
            if (is_alive) is_alive = write_some(c, i);
        }
        if (!is_alive) end_call(c);
    }
}

/* A line's weather changes: who must hear of it, does. */
static void set_weather(int at, weather now) {
    const int was_half = lines[at].weather == HALF || lines[at].weather == BACK;
    lines[at].weather = now;
    for (int k = 0; k < CALLS; k++) {
        struct call *c = &calls[k];
        if (!c->is_used || c->line != at) continue;
        if (now == CUT || was_half) end_call(c);
        if (now == HALF) hang_up(&c->fd[1]);
        if (now == BACK) hang_up(&c->fd[0]);
    }
}

static void obey(const char *words) {
    static const char *const names[] = {"fair", "cut", "hold", "half", "back", "slow"};
    const size_t n = strcspn(words, " ");
    char *end = NULL;
    const long number = strtol(words + n, &end, 10);
    if (number < 1 || number > n_lines) {
        fprintf(stderr, "tap: what is '%s'?\n", words);
        return;
    }
    struct line *line = &lines[number - 1];
    if (strncmp(words, "record ", 7) == 0) {
        (void)snprintf(line->record, sizeof line->record, "%s", end + strspn(end, " "));
        return;
    }
    line->until_ns = strait_clock_ns() + strtoll(end, &end, 10) * 1000000;
    line->delay_ns = strtoll(end, NULL, 10) * 1000000;
    for (int i = FAIR; i <= SLOW; i++)
        if (strlen(names[i]) == n && strncmp(words, names[i], n) == 0)
            set_weather((int)number - 1, (weather)i);
}

/* 0 at the end of standard input. */
static int read_orders(void) {
    static char text[512];
    static size_t n;
    const ssize_t got = read(STDIN_FILENO, text + n, sizeof text - n - 1);
    if (got <= 0) return 0;
    n += (size_t)got;
    text[n] = '\0';
    for (char *end = strchr(text, '\n'); end != NULL; end = strchr(text, '\n')) {
        *end = '\0';
        obey(text);
        n -= (size_t)(end + 1 - text);
        memmove(text, end + 1, n + 1);
    }
    return 1;
}

static void run(void) {
    static struct pollfd fds[2 * CALLS + LINES + 1];
    for (;;) {
        for (int k = 0; k < 2 * CALLS; k++) {
            const struct call *c = &calls[k / 2];
            const int listens = c->is_used && lines[c->line].weather != HOLD && can_read(c, k % 2);
            fds[k] = (struct pollfd){.fd = listens ? c->fd[k % 2] : -1, .events = POLLIN};
        }
        for (int i = 0; i < n_lines; i++)
            fds[2 * CALLS + i] = (struct pollfd){
                .fd = lines[i].weather == HOLD ? -1 : lines[i].listener, .events = POLLIN};
        fds[2 * CALLS + n_lines] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
        (void)poll(fds, 2UL * CALLS + (nfds_t)n_lines + 1, IDLE_MS);
        for (int i = 0; i < n_lines; i++) {
            if (lines[i].weather != FAIR && strait_clock_ns() > lines[i].until_ns)
                set_weather(i, FAIR);
            if (fds[2 * CALLS + i].revents != 0) accept_call(i);
        }
        serve_calls(fds);
        if (fds[2 * CALLS + n_lines].revents != 0 && !read_orders()) return;
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
        if (open_line(argv[i])) continue;
        perror(argv[i]);
        return 1;
    }
    puts("up");
    (void)fflush(stdout);
    run();
    return 0;
}
