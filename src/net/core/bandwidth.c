#include "net/core/bandwidth.h"

#include "net/emulate/emulate.h"

enum {
    BURST_NS = 20000000,   // of unused time that counts: a short pause does not lower the rate
    PORTION_NS = 20000000, // that moving one portion takes
    PORTION_MIN = 4096
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

void strait_bandwidth_spend(struct strait_bandwidth *limit, size_t bytes, int64_t now_ns) {
    if (limit == NULL) return;
    const size_t n_packets = (bytes + STRAIT_PACKET_PAYLOAD - 1) / STRAIT_PACKET_PAYLOAD;
    const double on_wire = (double)(bytes + n_packets * STRAIT_PACKET_HEADERS);
    pthread_mutex_lock(&limit->mutex);
    if (limit->free_ns < now_ns - BURST_NS) limit->free_ns = now_ns - BURST_NS;
    limit->free_ns += (int64_t)(on_wire * 1e9 / limit->bytes_per_s);
    pthread_mutex_unlock(&limit->mutex);
}

size_t strait_bandwidth_portion(const struct strait_bandwidth *limit, size_t bytes) {
    if (limit == NULL) return bytes;
    const double portion = limit->bytes_per_s * PORTION_NS * 1e-9;
    const size_t most = portion > PORTION_MIN ? (size_t)portion : PORTION_MIN;
    return bytes < most ? bytes : most;
}
