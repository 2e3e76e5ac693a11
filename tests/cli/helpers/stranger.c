/* stranger.c - attacks by someone who is not part of a run: stranger MODE INVITE [N [FROM]]
 *
 *   token     joins with a token that differs in its last bit
 *   version   sends frames of another protocol version
 *   early     sends messages without joining
 *   pieces    sends a piece of a snapshot of 2^60 bytes that was not requested
 *   other     joins another run at the same address
 *   silence   opens N connections, sends nothing, and waits until each is closed
 *   noise     opens N connections, one after another, and sends random bytes
 *   replay    replays the bytes that a worker sent when it joined; N is their file (tap.c)
 *   links     opens N links and sends nothing until they are closed
 *   sybil     joins N times with the right token, each time with a new key, and leaves
 *   large     opens N links and sends messages of 1,000,000 bytes until they are closed
 *
 * FROM is the source address of modes silence and sybil. Prints the result, "refused: REASON".
 * Exits with 0 when it was refused, with 1 otherwise. */
#include "base/bytes.h"
#include "base/clock.h"
#include "base/rng/rng.h"
#include "net/core/frame.h"
#include "swarm/protocol.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    WAIT_MS = 300000, // then a connection that should be closed is still there
    NEVER_MS = 15000, // without any closed connection: the rest were never accepted
    NOISE_BYTES = 4096,
    REPLAY_MAX = 1 << 20
};

static int has_old_version;
static struct sockaddr_in source = {.sin_family = AF_INET}; // any address by default
static int has_source;

/* Names required by the linker's --wrap. NOLINTBEGIN(*-naming,*-reserved-identifier,cert-dcl*) */
void __real_strait_frame_write(const struct strait_msg *msg, uint32_t run,
                               unsigned char out[STRAIT_FRAME_HEADER]);
void __wrap_strait_frame_write(const struct strait_msg *msg, uint32_t run,
                               unsigned char out[STRAIT_FRAME_HEADER]);

void __wrap_strait_frame_write(const struct strait_msg *msg, uint32_t run,
                               unsigned char out[STRAIT_FRAME_HEADER]) {
    __real_strait_frame_write(msg, run, out);
    if (has_old_version) out[2] = 0;
}
/* NOLINTEND(*-naming,*-reserved-identifier,cert-dcl*) */

/* Replaces the C library's, also for the shared libraries of this program. */
int connect(int fd, const struct sockaddr *address, socklen_t size) {
    if (has_source && address->sa_family == AF_INET)
        (void)bind(fd, (const struct sockaddr *)&source, sizeof source);
    return (int)syscall(SYS_connect, fd, address, size);
}

/* Prints the result; returns the exit code of the program. */
static int report(const char *result, const char *reason) {
    printf("%s: %s\n", result, reason);
    return strcmp(result, "refused") == 0 ? 0 : 1;
}

/* Waits until the coordinator refuses the worker or closes the connection. */
static int await_end(struct strait_mesh *mesh) {
    const int64_t until = strait_clock_ns() + WAIT_MS * INT64_C(1000000);
    while (strait_clock_ns() < until) {
        struct strait_msg *msg = NULL;
        if (strait_mesh_receive(mesh, 200, &msg) != STRAIT_OK) continue;
        char reason[256];
        (void)snprintf(reason, sizeof reason, "%.*s", (int)msg->size, (const char *)msg->body);
        strait_task task;
        const int type = msg->type;
        const int is_task = type == STRAIT_MSG_TASK && strait_task_unpack(msg, &task) == STRAIT_OK;
        const int is_refused = is_task && task.kind == STRAIT_TASK_REFUSE;
        if (is_refused) (void)snprintf(reason, sizeof reason, "%.255s", task.refuse.reason);
        strait_msg_close(&msg);
        if (is_refused) return report("refused", reason);
        if (type == STRAIT_MSG_DOWN) return report("refused", reason);
        if (is_task) return report("admitted", "");
    }
    return report("still connected", "");
}

static strait_err make_message(struct strait_msg_pool *pool, const char *mode,
                               const strait_invite *invite, struct strait_msg **out) {
    strait_join join = {.report = {.name = "stranger"},
                        .inventory = strait_snapshot_inventory_empty()};
    static const unsigned char byte[1] = {0};
    const strait_piece piece = {.total = UINT64_C(1) << 60, .data = byte, .bytes = 1};
    memcpy(join.token, invite->token, sizeof join.token);
    if (strcmp(mode, "pieces") == 0) return strait_piece_pack(pool, &piece, out);
    if (strcmp(mode, "early") == 0) return strait_msg_open(pool, STRAIT_MSG_LEAVE, 0, out);
    if (strcmp(mode, "token") == 0) join.token[STRAIT_TOKEN_BYTES - 1] ^= 1;
    return strait_join_pack(pool, &join, out);
}

static strait_err send_messages(struct strait_mesh *mesh, const char *mode,
                                const strait_invite *invite) {
    const int n = strcmp(mode, "early") == 0 || strcmp(mode, "pieces") == 0 ? 100 : 1;
    for (int i = 0; i < n; i++) {
        struct strait_msg *msg = NULL;
        STRAIT_TRY(make_message(strait_mesh_pool(mesh), mode, invite, &msg));
        const strait_err err = strait_mesh_send(mesh, 0, &msg);
        strait_msg_close(&msg);
        STRAIT_TRY(err);
    }
    return STRAIT_OK;
}

static int try_to_join(const char *mode, strait_invite *invite) {
    struct strait_identity *identity = NULL;
    struct strait_mesh *mesh = NULL;
    int peer = 0;
    int result = 1;
    if (strcmp(mode, "other") == 0) invite->run[0] ^= 1;
    has_old_version = strcmp(mode, "version") == 0;
    if (strait_identity_generate(&identity) != STRAIT_OK) return 1;
    strait_mesh_config config = {.scheme = "tls",
                                 .transport = {.identity = identity, .name = "stranger"}};
    memcpy(config.transport.run, invite->run, STRAIT_RUN_BYTES);
    const strait_mesh_peer host = {
        .name = "coordinator", .key = invite->key, .address = invite->address};
    if (strait_mesh_open(&config, &mesh) == STRAIT_OK &&
        strait_mesh_add(mesh, &host, &peer) == STRAIT_OK &&
        send_messages(mesh, mode, invite) == STRAIT_OK)
        result = await_end(mesh);
    strait_mesh_close(&mesh);
    strait_identity_close(&identity);
    return result;
}

static int join_often(strait_invite *invite, int n) {
    int n_admitted = 0;
    for (int i = 0; i < n; i++)
        n_admitted += try_to_join("sybil", invite);
    printf("%d of %d keys were admitted\n", n_admitted, n);
    return 0;
}

/* With `flags` SOCK_NONBLOCK returns before the connection is established. */
static int connect_to(const strait_invite *invite, int flags) {
    char host[STRAIT_ADDRESS_MAX];
    const char *colon = strrchr(invite->address, ':');
    struct sockaddr_in where = {.sin_family = AF_INET};
    (void)snprintf(host, sizeof host, "%.*s", (int)(colon - invite->address), invite->address);
    where.sin_port = htons((uint16_t)atoi(colon + 1));
    (void)inet_pton(AF_INET, host, &where.sin_addr);
    const int fd = socket(AF_INET, SOCK_STREAM | flags, 0);
    if (fd >= 0 &&
        (connect(fd, (struct sockaddr *)&where, sizeof where) == 0 || errno == EINPROGRESS))
        return fd;
    if (fd >= 0) (void)close(fd);
    return -1;
}

/* Keeps up to 500 connections open; each is replaced when it is closed, until n were opened. */
static int stay_silent(const strait_invite *invite, int n) {
    enum {
        AT_ONCE = 500
    };
    static struct pollfd fds[AT_ONCE];
    int n_opened = 0;
    int n_closed = 0;
    for (int i = 0; i < AT_ONCE; i++)
        fds[i] = (struct pollfd){.fd = -1, .events = POLLIN};
    while (n_closed < n) {
        for (int i = 0; i < AT_ONCE && n_opened < n; i++) {
            if (fds[i].fd >= 0) continue;
            fds[i].fd = connect_to(invite, SOCK_NONBLOCK);
            n_opened++;
            n_closed += fds[i].fd < 0;
        }
        if (poll(fds, AT_ONCE, NEVER_MS) == 0) break;
        for (int i = 0; i < AT_ONCE; i++) {
            if (fds[i].fd < 0 || fds[i].revents == 0) continue;
            (void)close(fds[i].fd);
            fds[i].fd = -1;
            n_closed++;
        }
    }
    return n_closed > n - n / 10 ? report("refused", "nearly all") : report("still connected", "");
}

/* ---- links that send nothing, or too much ---- */

struct links {
    int n_opened, n_closed;
    size_t bytes; // of each message that is sent; 0: none
};

static void send_large(struct strait_link *link, size_t bytes) {
    struct strait_msg *msg = NULL;
    strait_err err = STRAIT_OK;
    while (err == STRAIT_OK && bytes > 0) {
        err = strait_msg_open(link->transport->config.pool, STRAIT_MSG_LEAVE, bytes, &msg);
        if (err == STRAIT_OK) err = strait_link_send(link, &msg);
        strait_msg_close(&msg);
    }
}

static void on_opened(void *user, struct strait_link *link) {
    struct links *links = user;
    links->n_opened++;
    send_large(link, links->bytes);
}

static void on_received(void *user, struct strait_link *link, struct strait_msg **msg) {
    (void)user;
    (void)link;
    (void)msg;
}

static void on_writable(void *user, struct strait_link *link) {
    send_large(link, ((const struct links *)user)->bytes);
}

static void on_closed(void *user, struct strait_link *link, strait_err why) {
    (void)link;
    (void)why;
    ((struct links *)user)->n_closed++;
}

static int hold_links(const strait_invite *invite, int n, size_t bytes) {
    static const struct strait_transport_events events = {
        .opened = on_opened, .received = on_received, .writable = on_writable, .closed = on_closed};
    struct strait_transport *t = NULL;
    struct links links = {.bytes = bytes};
    strait_transport_config config = {.name = "stranger", .n_streams = 1};
    struct strait_identity *identity = NULL;
    if (strait_msg_pool_open(&config.pool) != STRAIT_OK) return 1;
    if (strait_identity_generate(&identity) != STRAIT_OK) return 1;
    config.identity = identity;
    memcpy(config.run, invite->run, STRAIT_RUN_BYTES);
    if (strait_transport_open("tls", &events, &links, &config, &t) != STRAIT_OK) return 1;
    for (int i = 0; i < n; i++) {
        struct strait_link *link = NULL;
        const strait_dial_params params = {.expected = &invite->key};
        (void)strait_transport_dial(t, invite->address, params, &link);
        (void)t->ops->progress(t, 10); // stays below the rate limit per address
    }
    const int64_t until = strait_clock_ns() + INT64_C(1000000) * WAIT_MS;
    while (links.n_closed < n && strait_clock_ns() < until)
        (void)t->ops->progress(t, 100);
    const int is_over = links.n_closed == n;
    strait_transport_close(&t);
    strait_msg_pool_close(&config.pool);
    strait_identity_close(&identity);
    printf("%d were opened\n", links.n_opened);
    return is_over ? report("refused", "all") : report("still connected", "");
}

static int make_noise(const strait_invite *invite, int n) {
    unsigned char noise[NOISE_BYTES];
    for (int i = 0; i < n; i++) {
        const int fd = connect_to(invite, 0);
        if (fd < 0) continue;
        for (size_t k = 0; k < sizeof noise; k++)
            noise[k] = (unsigned char)strait_rng_u64((strait_rng){1, (uint64_t)i}, k);
        /* Half of them begin like a TLS record that is too long. */
        if (i % 2 == 0) memcpy(noise, "\x16\x03\x01\xff\xff", 5);
        (void)send(fd, noise, sizeof noise, MSG_NOSIGNAL);
        struct pollfd end = {.fd = fd, .events = POLLIN};
        if (poll(&end, 1, WAIT_MS) != 1) return report("still connected", "");
        (void)close(fd);
    }
    return report("refused", "all of it");
}

/* The coordinator answers with a fresh hello, so that the recorded bytes no longer match. */
static int replay(const strait_invite *invite, const char *path) {
    static unsigned char recorded[REPLAY_MAX];
    FILE *file = fopen(path, "rb");
    const size_t n = file != NULL ? fread(recorded, 1, sizeof recorded, file) : 0;
    if (file != NULL) (void)fclose(file);
    const int fd = connect_to(invite, 0);
    if (n == 0 || fd < 0) return report("nothing", path);
    (void)send(fd, recorded, n, MSG_NOSIGNAL);
    for (size_t n_received = 0;;) {
        unsigned char received[4096];
        struct pollfd more = {.fd = fd, .events = POLLIN};
        if (poll(&more, 1, WAIT_MS) != 1) return report("still connected", "");
        const ssize_t got = recv(fd, received, sizeof received, 0);
        if (got > 0) n_received += (size_t)got;
        if (got > 0) continue;
        (void)close(fd);
        return n_received > 0 ? report("refused", "after its hello") : report("refused", "at once");
    }
}

int main(int argc, char **argv) {
    strait_invite invite;
    (void)signal(SIGPIPE, SIG_IGN); // being cut off while sending is what is tested
    if (argc < 3 || strait_invite_parse(argv[2], &invite) != STRAIT_OK) return 2;
    const int n = argc > 3 ? atoi(argv[3]) : 1;
    if (argc > 4 && inet_pton(AF_INET, argv[4], &source.sin_addr) != 1) return 2;
    has_source = argc > 4;
    if (strcmp(argv[1], "sybil") == 0) return join_often(&invite, n);
    if (strcmp(argv[1], "silence") == 0) return stay_silent(&invite, n);
    if (strcmp(argv[1], "links") == 0) return hold_links(&invite, n, 0);
    if (strcmp(argv[1], "large") == 0) return hold_links(&invite, n, 1000000);
    if (strcmp(argv[1], "noise") == 0) return make_noise(&invite, n);
    if (strcmp(argv[1], "replay") == 0 && argc > 3) return replay(&invite, argv[3]);
    return try_to_join(argv[1], &invite);
}
