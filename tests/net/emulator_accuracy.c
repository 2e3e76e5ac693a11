/* emulator_accuracy.c - compares an emulated link with real TCP over a wide-area link of the same
 * rate and delay.
 *
 * Needs root: it creates two network namespaces, one for each of two threads, connected by TUN
 * devices and wanlink.c. Nothing outside of them is changed; without root the test is skipped. */
#include "base/clock.h"
#include "check.h"
#include "net/mesh/mesh.h"
#include "net/wanlink.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

enum {
    BULK_BYTES = 1 << 20,
    N_WARM = 16, // until TCP has found the rate
    N_BULK = 40, // then measured
    SMALL_BYTES = 2048 * 16,
    N_SMALL = 120,
    SMALL_EVERY_MS = 12, // about a quarter of the rate
    N_PINGS = 15,
    ATTEMPTS = 6,
    SKIPPED = 77
};

static const double rate_bps = 80e6;
static const int64_t delay_ns = 30000000;

struct machine {
    struct strait_identity *identity;
    struct strait_mesh *mesh;
    char address[STRAIT_ADDRESS_MAX];
    int peer;
};

typedef struct measurements {
    double bulk_bps;  // bodies, once TCP is warm
    double one_way_s; // one-way time of a microbatch's message
    double round_trip_s;
    char congestion[16];
    uint64_t retransmits;
} measurements;

/* ---- namespaces ---- */

static int set_interface(int socket_fd, const char *name, const char *address) {
    struct ifreq request = {0};
    struct sockaddr_in where = {.sin_family = AF_INET};
    (void)snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    if (address != NULL) {
        if (inet_pton(AF_INET, address, &where.sin_addr) != 1) return 0;
        memcpy(&request.ifr_addr, &where, sizeof where);
        if (ioctl(socket_fd, SIOCSIFADDR, &request) != 0) return 0;
        where.sin_addr.s_addr = htonl(0xffffff00);
        memcpy(&request.ifr_netmask, &where, sizeof where);
        if (ioctl(socket_fd, SIOCSIFNETMASK, &request) != 0) return 0;
        request.ifr_qlen = 4096;
        (void)ioctl(socket_fd, SIOCSIFTXQLEN, &request);
    }
    request.ifr_flags = IFF_UP;
    return ioctl(socket_fd, SIOCSIFFLAGS, &request) == 0;
}

/* Moves this thread, and those it starts, into a new network namespace with one TUN device. */
static int enter_network(const char *address) {
    if (unshare(CLONE_NEWNET) != 0) return -1;
    const int tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI, .ifr_name = "wan0"};
    const int socket_fd = socket(AF_INET, SOCK_DGRAM, 0);
    const int is_good = tun >= 0 && socket_fd >= 0 && ioctl(tun, TUNSETIFF, &request) == 0 &&
                        set_interface(socket_fd, "wan0", address) &&
                        set_interface(socket_fd, "lo", NULL);
    const int error = errno;
    if (socket_fd >= 0) (void)close(socket_fd);
    if (is_good) return tun;
    if (tun >= 0) (void)close(tun);
    errno = error;
    return -1;
}

struct entry {
    struct machine *machine;
    const char *address; // NULL: stay in this namespace
    int tun;
    char reason[STRAIT_REASON_MAX];
};

static void open_machine(struct machine *n, const char *host, const strait_emulate_spec *emulate) {
    strait_mesh_config config = {.scheme = "tls", .transport = {.identity = n->identity}};
    char where[64];
    if (emulate != NULL) config.transport.emulate = *emulate;
    (void)snprintf(where, sizeof where, "%s:0", host);
    CHECK_OK(strait_mesh_open(&config, &n->mesh));
    CHECK_OK(strait_mesh_listen(n->mesh, where, n->address));
}

/* Opens a machine in a namespace of its own; its net thread runs there too. */
static void *open_remote_machine(void *arg) {
    struct entry *e = arg;
    e->tun = enter_network(e->address);
    if (e->tun < 0)
        (void)snprintf(e->reason, sizeof e->reason, "cannot create a network namespace: %s",
                       uv_strerror(-errno));
    else
        open_machine(e->machine, e->address, NULL);
    return NULL;
}

/* ---- measuring ---- */

static void connect_machines(struct machine *a, struct machine *b) {
    strait_mesh_peer peer = {.name = "a", .key = *strait_identity_fingerprint(a->identity)};
    CHECK_OK(strait_mesh_add(b->mesh, &peer, &b->peer));
    peer = (strait_mesh_peer){
        .name = "b", .key = *strait_identity_fingerprint(b->identity), .address = b->address};
    CHECK_OK(strait_mesh_add(a->mesh, &peer, &a->peer));
    CHECK_OK(strait_mesh_wait_up(a->mesh, a->peer, 10000));
    CHECK_OK(strait_mesh_wait_up(b->mesh, b->peer, 10000));
}

static void send_to(const struct machine *n, size_t bytes, uint32_t step) {
    struct strait_msg *msg = NULL;
    CHECK_OK(strait_msg_open(strait_mesh_pool(n->mesh), 20, bytes, &msg));
    msg->priority = STRAIT_PRIORITY_ACTIVATION;
    msg->step = step;
    memset(msg->body, (int)step, bytes);
    CHECK_OK(strait_mesh_send_wait(n->mesh, n->peer, 60000, &msg));
}

/* Receives the next message; returns when it arrived. */
static int64_t receive_at(const struct machine *n) {
    struct strait_msg *msg = NULL;
    int64_t when = 0;
    int is_notice = 1;
    while (is_notice) {
        CHECK_OK(strait_mesh_receive(n->mesh, 60000, &msg));
        is_notice = msg->type < STRAIT_MSG_FIRST;
        CHECK(msg->type != STRAIT_MSG_DOWN);
        when = msg->queued_ns;
        strait_msg_close(&msg);
    }
    return when;
}

static double bulk_rate(const struct machine *a, const struct machine *b) {
    for (uint32_t i = 0; i < N_WARM + N_BULK; i++)
        send_to(a, BULK_BYTES, i);
    int64_t first = 0, last = 0;
    for (int i = 0; i < N_WARM + N_BULK; i++) {
        last = receive_at(b);
        if (i == N_WARM - 1) first = last;
    }
    return (double)N_BULK * BULK_BYTES * 8e9 / (double)(last - first);
}

static int compare(const void *x, const void *y) {
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* The first decile: the time of the link itself, without delays by a busy machine. */
static double decile(double *values, size_t n) {
    qsort(values, n, sizeof *values, compare);
    return values[n / 10];
}

static void sleep_ms(int ms) {
    const struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    (void)nanosleep(&t, NULL);
}

/* Sends one message every SMALL_EVERY_MS, as a pipeline does, and times each of them. */
static double one_way(const struct machine *a, const struct machine *b) {
    static double took[N_SMALL];
    static int64_t sent[N_SMALL];
    const int64_t start = strait_clock_ns();
    for (int i = 0; i < N_SMALL; i++) {
        const int64_t when = start + (int64_t)i * SMALL_EVERY_MS * 1000000;
        while (strait_clock_ns() < when)
            sleep_ms(1);
        sent[i] = strait_clock_ns();
        send_to(a, SMALL_BYTES, (uint32_t)i);
    }
    for (int i = 0; i < N_SMALL; i++)
        took[i] = (double)(receive_at(b) - sent[i]) * 1e-9;
    return decile(took + N_SMALL / 4, N_SMALL - N_SMALL / 4);
}

static double round_trip(const struct machine *a, const struct machine *b) {
    double took[N_PINGS];
    for (uint32_t i = 0; i < N_PINGS; i++) {
        const int64_t start = strait_clock_ns();
        send_to(a, 1024, i);
        (void)receive_at(b);
        send_to(b, 1024, i);
        took[i] = (double)(receive_at(a) - start) * 1e-9;
    }
    return decile(took, N_PINGS);
}

static measurements measure(struct machine *a, struct machine *b) {
    measurements f = {0};
    connect_machines(a, b);
    f.bulk_bps = bulk_rate(a, b);
    sleep_ms(200);
    f.one_way_s = one_way(a, b);
    f.round_trip_s = round_trip(a, b);
    strait_link_stats stats;
    CHECK_OK(strait_mesh_stats(a->mesh, a->peer, &stats));
    memcpy(f.congestion, stats.congestion, sizeof f.congestion);
    f.retransmits = stats.retransmits;
    strait_mesh_close(&a->mesh);
    strait_mesh_close(&b->mesh);
    return f;
}

static void print(const char *what, const measurements *f) {
    (void)printf("%-9s bulk %.2f Mb/s, %d bytes one way in %.2f ms, round trip %.2f ms, %s, %llu "
                 "retransmits\n",
                 what, f->bulk_bps * 1e-6, SMALL_BYTES, f->one_way_s * 1e3, f->round_trip_s * 1e3,
                 f->congestion, (unsigned long long)f->retransmits);
}

static struct machine a, b;

static int is_close(double x, double y) {
    return fabs(x / y - 1) <= 0.05;
}

/* Measures both links; returns whether they agree within 5%. */
static int attempt(void) {
    struct entry entries[2] = {{.machine = &a, .address = "10.77.0.1"},
                               {.machine = &b, .address = "10.77.0.2"}};
    for (int i = 0; i < 2; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, open_remote_machine, &entries[i]) == 0);
        pthread_join(thread, NULL);
        if (entries[i].reason[0] != 0) fail_msg("%s", entries[i].reason);
    }
    const wanlink_spec spec = {.rate_bps = rate_bps, .delay_ns = delay_ns, .queue_ns = 100000000};
    struct wanlink *wan = wanlink_open(entries[0].tun, entries[1].tun, spec);
    CHECK(wan != NULL);
    const measurements real = measure(&a, &b);
    wanlink_close(wan);
    (void)close(entries[0].tun);
    (void)close(entries[1].tun);

    const strait_emulate_spec emulate = {.rate_bps = rate_bps, .delay_ns = delay_ns};
    open_machine(&a, "127.0.0.1", &emulate);
    open_machine(&b, "127.0.0.1", &emulate);
    const measurements emulated = measure(&a, &b);
    print("real", &real);
    print("emulated", &emulated);
    return is_close(emulated.bulk_bps, real.bulk_bps) &&
           is_close(emulated.one_way_s, real.one_way_s) &&
           is_close(emulated.round_trip_s, real.round_trip_s);
}

static void emulated_link_matches_real_tcp(void **state) {
    (void)state;
    int is_accurate = 0; // a busy machine can fail an attempt; a wrong emulator fails all
    for (int i = 0; i < ATTEMPTS && !is_accurate; i++)
        is_accurate = attempt();
    CHECK(is_accurate);
}

int main(void) {
    if (geteuid() != 0 || access("/dev/net/tun", R_OK | W_OK) != 0) {
        (void)printf("skipped: needs root and /dev/net/tun to create a wide-area link\n");
        return SKIPPED;
    }
    if (strait_identity_generate(&a.identity) != STRAIT_OK ||
        strait_identity_generate(&b.identity) != STRAIT_OK)
        return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(emulated_link_matches_real_tcp)};
    const int result = cmocka_run_group_tests(tests, NULL, NULL);
    strait_identity_close(&a.identity);
    strait_identity_close(&b.identity);
    return result;
}
