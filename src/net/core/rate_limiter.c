/* rate_limiter.c - a hash table of source addresses, each with a token bucket. */
#include "net/core/rate_limiter.h"

#include "base/alloc.h"

#include <netinet/in.h>
#include <string.h>

enum {
    BURST_S = 2 // seconds' worth of connections that may be opened at once
};

/* An IPv6 customer is assigned a whole /64, so its addresses count as one; an IPv4 address that was
 * mapped into IPv6 counts as the IPv4 address. */
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

/* FNV-1a. An attacker who fills one bucket is bounded by STRAIT_RATE_LIMITER_MAX entries. */
static unsigned bucket_of(const unsigned char address[8]) {
    uint32_t hash = 2166136261u;
    for (int i = 0; i < 8; i++)
        hash = (hash ^ address[i]) * 16777619u;
    return (hash ^ hash >> 16) % STRAIT_RATE_LIMITER_BUCKETS;
}

/* The capacity of the token bucket. */
static double burst(const struct strait_rate_limiter *limiter) {
    return (double)limiter->max_per_s * BURST_S;
}

/* Adds the allowance earned since the last call. */
static void refill(const struct strait_rate_limiter *limiter,
                   struct strait_rate_limiter_entry *entry, int64_t now_ns) {
    entry->allowance += (double)(now_ns - entry->refilled_ns) * 1e-9 * limiter->max_per_s;
    if (entry->allowance > burst(limiter)) entry->allowance = burst(limiter);
    entry->refilled_ns = now_ns;
}

/* A new address starts with a full bucket, so that a worker with several streams can connect. */
static strait_err find(struct strait_rate_limiter *limiter, const unsigned char address[8],
                       int64_t now_ns, struct strait_rate_limiter_entry **out) {
    struct strait_rate_limiter_entry **bucket = &limiter->buckets[bucket_of(address)];
    for (struct strait_rate_limiter_entry *entry = *bucket; entry != NULL; entry = entry->next) {
        if (memcmp(entry->address, address, 8) != 0) continue;
        *out = entry;
        return STRAIT_OK;
    }
    void *memory = NULL;
    if (limiter->n_entries >= STRAIT_RATE_LIMITER_MAX)
        return STRAIT_FAIL(STRAIT_EAGAIN,
                           "refused: connections from more than %d addresses are open",
                           STRAIT_RATE_LIMITER_MAX);
    STRAIT_TRY(strait_alloc(1, sizeof **out, "address", &memory));
    struct strait_rate_limiter_entry *entry = memory;
    memcpy(entry->address, address, 8);
    entry->allowance = burst(limiter);
    entry->refilled_ns = now_ns;
    entry->next = *bucket;
    *bucket = entry;
    limiter->n_entries++;
    *out = entry;
    return STRAIT_OK;
}

strait_err strait_rate_limiter_acquire(struct strait_rate_limiter *limiter,
                                       const struct sockaddr *from, int64_t now_ns,
                                       struct strait_rate_limiter_entry **out) {
    unsigned char address[8];
    struct strait_rate_limiter_entry *entry = NULL;
    key_of(from, address);
    STRAIT_TRY(find(limiter, address, now_ns, &entry));
    refill(limiter, entry, now_ns);
    if (entry->n_open >= limiter->max_open || entry->allowance < 1)
        return STRAIT_FAIL(
            STRAIT_EAGAIN,
            "refused: too many connections from one address (at most %d at once, %d per "
            "second)",
            limiter->max_open, limiter->max_per_s);
    entry->allowance -= 1; // a refused connection costs nothing: it was not opened
    entry->n_open++;
    *out = entry;
    return STRAIT_OK;
}

/* The entry stays: its bucket may not be full yet. */
void strait_rate_limiter_release(struct strait_rate_limiter_entry *entry) {
    entry->n_open--;
}

void strait_rate_limiter_sweep(struct strait_rate_limiter *limiter, int64_t now_ns) {
    for (int i = 0; i < STRAIT_RATE_LIMITER_BUCKETS; i++) {
        for (struct strait_rate_limiter_entry **at = &limiter->buckets[i]; *at != NULL;) {
            struct strait_rate_limiter_entry *entry = *at;
            refill(limiter, entry, now_ns);
            /* Forgetting it earlier would give a fast caller a fresh allowance. */
            if (entry->n_open > 0 || entry->allowance < burst(limiter)) {
                at = &entry->next;
                continue;
            }
            *at = entry->next;
            limiter->n_entries--;
            strait_alloc_free(entry);
        }
    }
}

void strait_rate_limiter_fini(struct strait_rate_limiter *limiter) {
    for (int i = 0; i < STRAIT_RATE_LIMITER_BUCKETS; i++) {
        while (limiter->buckets[i] != NULL) {
            struct strait_rate_limiter_entry *entry = limiter->buckets[i];
            limiter->buckets[i] = entry->next;
            strait_alloc_free(entry);
        }
    }
    limiter->n_entries = 0;
}
