#include "net/core/bandwidth.h"

#include "net/emulate/emulate.h"

enum {
    BURST_NS = 20000000,   // of unused time that counts: a short pause does not lower the rate
    PORTION_NS = 20000000, // that moving one portion takes
    PORTION_MIN = 4096,
    TURN_NS = 50000000, // in which the first of the waiting links must ask again
    AGAIN_NS = 1000000  // for a link whose turn has not come
};

void strait_bandwidth_init(struct strait_bandwidth *limit, double bits_per_s) {
    *limit = (struct strait_bandwidth){.bytes_per_s = bits_per_s / 8.0, .free_ns = INT64_MIN};
    pthread_mutex_init(&limit->mutex, NULL);
}

void strait_bandwidth_fini(struct strait_bandwidth *limit) {
    pthread_mutex_destroy(&limit->mutex);
}

int64_t strait_bandwidth_due_ns(struct strait_bandwidth *limit, int64_t now_ns) {
    if (limit == NULL) return now_ns;
    pthread_mutex_lock(&limit->mutex);
    const int64_t free_ns = limit->free_ns;
    pthread_mutex_unlock(&limit->mutex);
    return free_ns;
}

/* ---- turns; the caller holds the mutex ---- */

static int find(const struct strait_bandwidth *limit, const void *link) {
    int i = 0;
    while (i < limit->n_waiting && limit->waiting[i].link != link)
        i++;
    return i;
}

static void stop_waiting(struct strait_bandwidth *limit, int i) {
    if (i >= limit->n_waiting) return;
    limit->n_waiting--;
    for (; i < limit->n_waiting; i++)
        limit->waiting[i] = limit->waiting[i + 1];
}

/* Closed links, and those that have nothing to send any more, do not ask again. */
static void drop_absent(struct strait_bandwidth *limit, int64_t now_ns) {
    while (limit->n_waiting > 0 && now_ns > limit->free_ns + TURN_NS &&
           now_ns > limit->waiting[0].asked_ns + TURN_NS)
        stop_waiting(limit, 0);
}

static int64_t take_turn(struct strait_bandwidth *limit, const void *link, int64_t now_ns) {
    drop_absent(limit, now_ns);
    const int i = find(limit, link);
    if (limit->free_ns <= now_ns && (limit->n_waiting == 0 || i == 0)) return now_ns;
    if (i == limit->n_waiting && i < STRAIT_BANDWIDTH_WAITING) limit->n_waiting++;
    if (i == STRAIT_BANDWIDTH_WAITING) return limit->free_ns;
    limit->waiting[i].link = link;
    limit->waiting[i].asked_ns = now_ns;
    return limit->free_ns > now_ns ? limit->free_ns : now_ns + AGAIN_NS;
}

int64_t strait_bandwidth_turn_ns(struct strait_bandwidth *limit, const void *link, int64_t now_ns) {
    if (limit == NULL) return now_ns;
    pthread_mutex_lock(&limit->mutex);
    const int64_t due = take_turn(limit, link, now_ns);
    pthread_mutex_unlock(&limit->mutex);
    return due;
}

void strait_bandwidth_spend(struct strait_bandwidth *limit, const void *link, size_t bytes,
                            int64_t now_ns) {
    if (limit == NULL) return;
    const size_t n_packets = (bytes + STRAIT_PACKET_PAYLOAD - 1) / STRAIT_PACKET_PAYLOAD;
    const double on_wire = (double)(bytes + n_packets * STRAIT_PACKET_HEADERS);
    pthread_mutex_lock(&limit->mutex);
    if (limit->free_ns < now_ns - BURST_NS) limit->free_ns = now_ns - BURST_NS;
    stop_waiting(limit, find(limit, link));
    limit->free_ns += (int64_t)(on_wire * 1e9 / limit->bytes_per_s);
    pthread_mutex_unlock(&limit->mutex);
}

size_t strait_bandwidth_portion(const struct strait_bandwidth *limit, size_t bytes) {
    if (limit == NULL) return bytes;
    const double portion = limit->bytes_per_s * PORTION_NS * 1e-9;
    const size_t most = portion > PORTION_MIN ? (size_t)portion : PORTION_MIN;
    return bytes < most ? bytes : most;
}
