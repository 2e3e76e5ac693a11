#include "net/core/rate_limiter.h"

#include "base/alloc.h"

#include <netinet/in.h>
#include <string.h>

enum {
    BURST_S = 2 // so many seconds' worth of connections may come at once
};

/* A whole /64 belongs to one customer: its hosts count as one. */
static void key_of(const struct sockaddr *from, unsigned char out[8]) {
    memset(out, 0, 8);
    if (from->sa_family == AF_INET6) {
        const struct in6_addr *a = &((const struct sockaddr_in6 *)from)->sin6_addr;
        if (!IN6_IS_ADDR_V4MAPPED(a)) {
            memcpy(out, a->s6_addr, 8);
            return;
        }
        memcpy(out + 4, a->s6_addr + 12, 4);
        return;
    }
    memcpy(out + 4, &((const struct sockaddr_in *)from)->sin_addr, 4);
}

static unsigned bucket_of(const unsigned char address[8]) {
    uint32_t hash = 2166136261u;
    for (int i = 0; i < 8; i++)
        hash = (hash ^ address[i]) * 16777619u;
    return (hash ^ hash >> 16) % STRAIT_RATE_LIMITER_BUCKETS;
}

static double full(const struct strait_rate_limiter *limiter) {
    return (double)limiter->max_per_s * BURST_S;
}

static void refill(const struct strait_rate_limiter *limiter, struct strait_rate_limiter_entry *h,
                   int64_t now_ns) {
    h->allowance += (double)(now_ns - h->refilled_ns) * 1e-9 * limiter->max_per_s;
    if (h->allowance > full(limiter)) h->allowance = full(limiter);
    h->refilled_ns = now_ns;
}

static strait_err find(struct strait_rate_limiter *limiter, const unsigned char address[8],
                       int64_t now_ns, struct strait_rate_limiter_entry **out) {
    struct strait_rate_limiter_entry **bucket = &limiter->buckets[bucket_of(address)];
    for (struct strait_rate_limiter_entry *h = *bucket; h != NULL; h = h->next) {
        if (memcmp(h->address, address, 8) != 0) continue;
        *out = h;
        return STRAIT_OK;
    }
    void *memory = NULL;
    if (limiter->n_entries >= STRAIT_RATE_LIMITER_MAX)
        return STRAIT_FAIL(STRAIT_EAGAIN, "connections from too many addresses");
    STRAIT_TRY(strait_alloc(1, sizeof **out, "address", &memory));
    struct strait_rate_limiter_entry *h = memory;
    memcpy(h->address, address, 8);
    h->allowance = full(limiter);
    h->refilled_ns = now_ns;
    h->next = *bucket;
    *bucket = h;
    limiter->n_entries++;
    *out = h;
    return STRAIT_OK;
}

strait_err strait_rate_limiter_acquire(struct strait_rate_limiter *limiter,
                                       const struct sockaddr *from, int64_t now_ns,
                                       struct strait_rate_limiter_entry **out) {
    unsigned char address[8];
    struct strait_rate_limiter_entry *h = NULL;
    key_of(from, address);
    STRAIT_TRY(find(limiter, address, now_ns, &h));
    refill(limiter, h, now_ns);
    if (h->n_open >= limiter->max_open || h->allowance < 1)
        return STRAIT_FAIL(STRAIT_EAGAIN, "too many connections from one address");
    h->allowance -= 1;
    h->n_open++;
    *out = h;
    return STRAIT_OK;
}

void strait_rate_limiter_release(struct strait_rate_limiter_entry *source) {
    source->n_open--;
}

void strait_rate_limiter_sweep(struct strait_rate_limiter *limiter, int64_t now_ns) {
    for (int i = 0; i < STRAIT_RATE_LIMITER_BUCKETS; i++) {
        for (struct strait_rate_limiter_entry **at = &limiter->buckets[i]; *at != NULL;) {
            struct strait_rate_limiter_entry *h = *at;
            refill(limiter, h, now_ns);
            if (h->n_open > 0 || h->allowance < full(limiter)) {
                at = &h->next;
                continue;
            }
            *at = h->next;
            limiter->n_entries--;
            strait_alloc_free(h);
        }
    }
}

void strait_rate_limiter_fini(struct strait_rate_limiter *limiter) {
    for (int i = 0; i < STRAIT_RATE_LIMITER_BUCKETS; i++) {
        while (limiter->buckets[i] != NULL) {
            struct strait_rate_limiter_entry *h = limiter->buckets[i];
            limiter->buckets[i] = h->next;
            strait_alloc_free(h);
        }
    }
    limiter->n_entries = 0;
}
