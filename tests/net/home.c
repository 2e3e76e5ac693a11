/* A worker at home: all of its links share one way out and one way in.
 *
 * Without arguments, tests of the emulator over real sockets and in process. Lower bounds of times
 * are exact; upper ones leave a busy machine some time. With the names of three network namespaces
 * (of the home and of two others), measures the same transfers between them and compares them with
 * emulated ones: home-run.sh puts the home behind token buckets of the kernel. */
#include "base/clock.h"
#include "check.h"
#include "net/inproc/endpoint.h"
#include "net/mesh/mesh.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    N_MESSAGES = 40, // for, or from, each of the two others
    MESSAGE_BYTES = 32768
};

static const double rate_bps = 40e6;
static const double slack = 1.5; // of a busy machine

/* Which way the messages go. */
enum way {
    OUT,
    IN,
    BOTH_WAYS
};

struct node {
    struct strait_identity *identity;
    struct strait_mesh *mesh;
    char address[STRAIT_ADDRESS_MAX];
    const char *space, *host; // its network namespace, and its address there; NULL: ours
    int peers[2];             // of the home: the others; of another: the home
};

static struct strait_inproc_network *network;
static struct node home, others[2];
static const char *scheme;

/* Runs in a thread of its own, whose network namespace the net thread inherits. */
static void *open_node(void *arg) {
    struct node *n = arg;
    const int is_inproc = strcmp(scheme, "inproc") == 0;
    strait_mesh_config config = {.scheme = scheme,
                                 .transport = {.network = network, .run = {7}, .n_streams = 2}};
    char where[64];
    if (is_inproc)
        (void)snprintf(where, sizeof where, "node-%p", (const void *)n);
    else
        (void)snprintf(where, sizeof where, "%s:0", n->host != NULL ? n->host : "127.0.0.1");
    if (n->space != NULL) {
        char path[128];
        (void)snprintf(path, sizeof path, "/run/netns/%s", n->space);
        const int fd = open(path, O_RDONLY | O_CLOEXEC);
        CHECK(fd >= 0 && setns(fd, CLONE_NEWNET) == 0);
        (void)close(fd);
    }
    CHECK_OK(strait_identity_generate(&n->identity));
    config.transport.identity = n->identity;
    CHECK_OK(strait_mesh_open(&config, &n->mesh));
    CHECK_OK(strait_mesh_listen(n->mesh, where, n->address));
    return NULL;
}

static int add(const struct node *n, const struct node *other, const char *address,
               const strait_emulate_spec *emulate) {
    int peer = -1;
    const strait_mesh_peer added = {.name = "peer",
                                    .key = *strait_identity_fingerprint(other->identity),
                                    .address = address,
                                    .emulate = emulate};
    CHECK_OK(strait_mesh_add(n->mesh, &added, &peer));
    return peer;
}

/* The home dials one of the others, and the other one dials it. */
static void connect_all(const strait_emulate_spec *of_home) {
    struct node *nodes[] = {&home, &others[0], &others[1]};
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, open_node, nodes[i]) == 0);
        pthread_join(thread, NULL);
    }
    others[0].peers[0] = add(&others[0], &home, NULL, NULL);
    home.peers[0] = add(&home, &others[0], others[0].address, of_home);
    home.peers[1] = add(&home, &others[1], NULL, of_home);
    others[1].peers[0] = add(&others[1], &home, home.address, NULL);
    for (int k = 0; k < 2; k++)
        CHECK_OK(strait_mesh_wait_up(home.mesh, home.peers[k], 60000));
}

static int set_up(void **state) {
    scheme = *state;
    CHECK_OK(strait_inproc_network_open(&network));
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    struct node *nodes[] = {&home, &others[0], &others[1]};
    for (int i = 0; i < 3; i++)
        strait_mesh_close(&nodes[i]->mesh);
    for (int i = 0; i < 3; i++)
        strait_identity_close(&nodes[i]->identity);
    strait_inproc_network_close(&network);
    return 0;
}

static void send_all(const struct node *from, int peer, int n) {
    for (int i = 0; i < n; i++) {
        struct strait_msg *msg = NULL;
        CHECK_OK(strait_msg_open(strait_mesh_pool(from->mesh), 20, MESSAGE_BYTES, &msg));
        msg->priority = STRAIT_PRIORITY_ACTIVATION;
        memset(msg->body, i, MESSAGE_BYTES);
        CHECK_OK(strait_mesh_send_wait(from->mesh, peer, 60000, &msg));
    }
}

/* Receives a message that is not an UP notice; returns when it arrived. */
static int64_t receive_at(const struct node *n, int *peer) {
    for (;;) {
        struct strait_msg *msg = NULL;
        CHECK_OK(strait_mesh_receive(n->mesh, 60000, &msg));
        const int is_message = msg->type >= STRAIT_MSG_FIRST;
        const int64_t when = msg->queued_ns;
        *peer = msg->peer;
        strait_msg_close(&msg);
        if (is_message) return when;
    }
}

/* What a transfer of n messages to or from each of the others took. */
struct transfer {
    double out_s, in_s; // until the last has arrived
    double middle_s[2]; // until half of those of each of the others have
};

static double since(int64_t when, int64_t began) {
    return (double)(when - began) * 1e-9;
}

static struct transfer move(enum way way, int n) {
    struct transfer t = {0};
    int n_in[2] = {0};
    const int64_t began = strait_clock_ns();
    for (int k = 0; k < 2; k++) {
        if (way != IN) send_all(&home, home.peers[k], n);
        if (way != OUT) send_all(&others[k], others[k].peers[0], n);
    }
    for (int k = 0; way != IN && k < 2; k++)
        for (int i = 0, peer = 0; i < n; i++) {
            const double now_s = since(receive_at(&others[k], &peer), began);
            t.out_s = fmax(t.out_s, now_s);
            if (i == n / 2) t.middle_s[k] = now_s;
        }
    while (way != OUT && n_in[0] + n_in[1] < 2 * n) {
        int peer = 0;
        t.in_s = since(receive_at(&home, &peer), began);
        const int k = peer == home.peers[1];
        if (n_in[k]++ == n / 2) t.middle_s[k] = t.in_s;
    }
    return t;
}

/* Seconds that n messages for each of the others take on a wire of the home, headers included. */
static double least_seconds(double bps, int n) {
    return 2.0 * n * MESSAGE_BYTES * 8 / bps *
           (1 + (double)STRAIT_PACKET_HEADERS / STRAIT_PACKET_PAYLOAD);
}

/* No machine is busy enough for that: it counts at once. */
static int was_too_fast;

static void check_total(double seconds) {
    const double least = least_seconds(rate_bps, N_MESSAGES);
    was_too_fast |= seconds < 0.97 * least;
    (void)printf("%s: %.3f s for both, at least %.3f\n", scheme, seconds, least);
    CHECK(seconds >= 0.97 * least && seconds <= slack * least + 0.3);
}

static void links_share_the_way_out(void **state) {
    (void)state;
    connect_all(&(strait_emulate_spec){.up_bps = rate_bps, .delay_ns = 1000000});
    const struct transfer t = move(OUT, N_MESSAGES);
    check_total(t.out_s);
    CHECK(fabs(t.middle_s[0] - t.middle_s[1]) <= 0.25 * t.out_s); // neither waits for the other
}

static void links_share_the_way_in(void **state) {
    (void)state;
    connect_all(&(strait_emulate_spec){.down_bps = rate_bps, .delay_ns = 1000000});
    const struct transfer t = move(IN, N_MESSAGES);
    check_total(t.in_s);
    /* In process a message comes whole: those that come first pass first. */
    CHECK(strcmp(scheme, "inproc") == 0 || fabs(t.middle_s[0] - t.middle_s[1]) <= 0.25 * t.in_s);
}

static void both_ways_are_used_at_once(void **state) {
    (void)state;
    connect_all(&(strait_emulate_spec){.up_bps = rate_bps, .down_bps = rate_bps});
    const struct transfer t = move(BOTH_WAYS, N_MESSAGES);
    check_total(t.out_s);
    check_total(t.in_s);
}

/* A home whose rates are not limited is as fast as the machine. */
static void a_home_without_rates_is_not_slowed(void **state) {
    (void)state;
    connect_all(NULL);
    CHECK(move(OUT, N_MESSAGES).out_s < least_seconds(rate_bps, N_MESSAGES) / 2);
}

/* ---- against the kernel ---- */

enum {
    N_WARM = 30, // messages until TCP has found the rate
    N_LONG = 120
};

/* Measured once the connections are warm, as those of a run are. */
static struct transfer measure(enum way way, const strait_emulate_spec *emulate) {
    void *state = (void *)(uintptr_t) "tls";
    (void)set_up(&state);
    connect_all(emulate);
    (void)move(way, N_WARM);
    const struct transfer t = move(way, N_LONG);
    (void)tear_down(&state);
    return t;
}

/* With traffic both ways, acknowledgements wait in the kernel's queues behind data, which lowers
 * the rate of TCP by 5 to 10%; the emulator knows no such queues. */
static int is_close(enum way way, double x, double y) {
    return fabs(x / y - 1) <= (way == BOTH_WAYS ? 0.12 : 0.05);
}

/* `spaces` are the namespaces; the kernel limits that of the home to `mbit` each way. */
static int agrees_with_kernel(char **spaces, double mbit) {
    static const char *const names[] = {"out", "in", "both ways"};
    const strait_emulate_spec spec = {.up_bps = mbit * 1e6, .down_bps = mbit * 1e6};
    const char *const hosts[] = {"10.197.0.10", "10.197.0.11", "10.197.0.12"};
    struct node *nodes[] = {&home, &others[0], &others[1]};
    int n_wrong = 0;
    for (enum way way = OUT; way <= BOTH_WAYS; way++) {
        const double bits = 2.0 * N_LONG * MESSAGE_BYTES * 8e-6;
        for (int i = 0; i < 3; i++)
            nodes[i]->space = nodes[i]->host = NULL;
        const struct transfer emulated = measure(way, &spec);
        for (int i = 0; i < 3; i++) {
            nodes[i]->space = spaces[i];
            nodes[i]->host = hosts[i];
        }
        const struct transfer real = measure(way, NULL);
        const double took[2] = {(emulated.out_s + emulated.in_s) / (1 + (way == BOTH_WAYS)),
                                (real.out_s + real.in_s) / (1 + (way == BOTH_WAYS))};
        (void)printf("%-9s emulated %.2f Mb/s, token bucket %.2f Mb/s\n", names[way],
                     bits / took[0], bits / took[1]);
        n_wrong += !is_close(way, took[0], took[1]);
    }
    return n_wrong == 0;
}

#define ON(of, test)                                                                               \
    {                                                                                              \
        .name = of " " #test, .test_func = test, .setup_func = set_up, .teardown_func = tear_down, \
        .initial_state = (void *)(uintptr_t)(of)                                                   \
    }

int main(int argc, char **argv) {
    if (argc == 5) return agrees_with_kernel(argv + 2, strtod(argv[1], NULL)) ? 0 : 1;
    const struct CMUnitTest tests[] = {
        ON("tls", links_share_the_way_out),
        ON("inproc", links_share_the_way_out),
        ON("tls", links_share_the_way_in),
        ON("inproc", links_share_the_way_in),
        ON("tls", both_ways_are_used_at_once),
        ON("inproc", both_ways_are_used_at_once),
        ON("tls", a_home_without_rates_is_not_slowed),
    };
    int n_failed = 1;
    for (int i = 0; i < 5 && n_failed != 0 && !was_too_fast;
         i++) // other programs may run beside it
        n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    return n_failed;
}
