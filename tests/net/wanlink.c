#include "net/wanlink.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum {
    SLOTS = 8192,
    PACKET_MAX = 2048,
    ETHERNET_HEADER = 14
};

struct packet {
    int64_t due_ns;
    size_t bytes;
    unsigned char data[PACKET_MAX];
};

struct direction {
    pthread_t thread;
    int from, to, stop;
    wanlink_spec spec;
    int64_t free_ns;
    uint64_t random;
    uint64_t first, end; // positions in `slots`
    struct packet *slots;
};

struct wanlink {
    struct direction ways[2];
    int stop;
    int n_running;
};

static int64_t now_ns(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static double draw(struct direction *d) {
    d->random ^= d->random << 13;
    d->random ^= d->random >> 7;
    d->random ^= d->random << 17;
    return (double)(d->random >> 11) * 0x1p-53;
}

/* Reads one packet into the next slot, or drops it; returns 0 when there is none to read. */
static int take_packet(struct direction *d) {
    struct packet *p = &d->slots[d->end % SLOTS];
    const ssize_t n = read(d->from, p->data, sizeof p->data);
    if (n <= 0) return 0;
    const int64_t now = now_ns();
    if (d->free_ns < now) d->free_ns = now;
    if (d->free_ns - now > d->spec.queue_ns) return 1;
    d->free_ns += (int64_t)((double)(n + ETHERNET_HEADER) * 8e9 / d->spec.rate_bps);
    if (d->spec.loss > 0 && draw(d) < d->spec.loss) return 1;
    p->bytes = (size_t)n;
    p->due_ns = d->free_ns + d->spec.delay_ns;
    d->end++;
    return 1;
}

static void deliver_due(struct direction *d) {
    const int64_t now = now_ns();
    while (d->first < d->end && d->slots[d->first % SLOTS].due_ns <= now) {
        const struct packet *p = &d->slots[d->first++ % SLOTS];
        if (write(d->to, p->data, p->bytes) < 0) continue; // counts as a lost packet
    }
}

static void *run(void *arg) {
    struct direction *d = arg;
    struct pollfd fds[2] = {{.fd = d->from, .events = POLLIN}, {.fd = d->stop, .events = POLLIN}};
    for (;;) {
        struct timespec wait = {.tv_sec = 1};
        if (d->first < d->end) {
            int64_t left = d->slots[d->first % SLOTS].due_ns - now_ns();
            if (left < 0) left = 0;
            wait = (struct timespec){.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
        }
        if (ppoll(fds, 2, &wait, NULL) < 0 || fds[1].revents != 0) return NULL;
        while (d->end - d->first < SLOTS && take_packet(d)) {
        }
        deliver_due(d);
    }
}

struct wanlink *wanlink_open(int tun_a, int tun_b, wanlink_spec spec) {
    struct wanlink *link = calloc(1, sizeof *link);
    if (link == NULL) return NULL;
    link->stop = eventfd(0, EFD_CLOEXEC);
    for (int i = 0; i < 2; i++) {
        struct direction *d = &link->ways[i];
        *d = (struct direction){.from = i == 0 ? tun_a : tun_b,
                                .to = i == 0 ? tun_b : tun_a,
                                .stop = link->stop,
                                .spec = spec,
                                .random = UINT64_C(88172645463325252) + (uint64_t)i,
                                .slots = calloc(SLOTS, sizeof(struct packet))};
        if (d->slots == NULL || pthread_create(&d->thread, NULL, run, d) != 0) {
            wanlink_close(link);
            return NULL;
        }
        link->n_running++;
    }
    return link;
}

void wanlink_close(struct wanlink *link) {
    if (link == NULL) return;
    const uint64_t one = 1;
    if (write(link->stop, &one, sizeof one) == sizeof one)
        for (int i = 0; i < link->n_running; i++)
            pthread_join(link->ways[i].thread, NULL);
    for (int i = 0; i < 2; i++)
        free(link->ways[i].slots);
    (void)close(link->stop);
    free(link);
}
