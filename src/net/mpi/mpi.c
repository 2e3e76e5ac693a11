/* mpi.c - the transport between the ranks of a job: links that exchange envelopes, moved by MPI.
 *
 * The launcher has started all ranks as one user, and MPI decides who reaches whom, so nothing is
 * encrypted. Peers exchange keys and run ids all the same, as over every transport.
 *
 * An endpoint has a number, its rank and a port, and the address rank-R:PORT. A process may have
 * several, for example that of the coordinator and that of a stage. */
#include "base/alloc.h"
#include "base/clock.h"
#include "net/mpi/endpoint.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    SPARE = 16,           // envelopes allocated ahead in each direction
    NAP_MIN_NS = 50000,   // between two polls, while messages arrive
    NAP_BUSY_NS = 100000, // at most, while a message is under way: large ones take several polls
    NAP_MAX_NS = 2000000, // after a long silence
    NAP_SHARE = 16,       // a nap is this part of the silence: polls cost the stage its core
    FLUSH_NAP_NS = 200000 // while an endpoint closes
};

/* The endpoints of this process, so that an address that is taken or not there is noticed. */
static struct {
    pthread_mutex_t mutex;
    struct strait_mpi_endpoint *first; // guarded by mutex
    uint32_t n_opened;                 // guarded by mutex; ports are never used again
} endpoints = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static uint64_t number_of(void *self) {
    const struct strait_mpi_endpoint *endpoint = self;
    return (uint64_t)strait_mpi_rank() << 32 | endpoint->port;
}

static void add_endpoint(struct strait_mpi_endpoint *endpoint) {
    pthread_mutex_lock(&endpoints.mutex);
    endpoint->port = ++endpoints.n_opened;
    endpoint->next_endpoint = endpoints.first;
    endpoints.first = endpoint;
    pthread_mutex_unlock(&endpoints.mutex);
}

static void remove_endpoint(const struct strait_mpi_endpoint *endpoint) {
    pthread_mutex_lock(&endpoints.mutex);
    for (struct strait_mpi_endpoint **at = &endpoints.first; *at != NULL;
         at = &(*at)->next_endpoint) {
        if (*at != endpoint) continue;
        *at = endpoint->next_endpoint;
        break;
    }
    pthread_mutex_unlock(&endpoints.mutex);
}

static int listens(uint64_t port) {
    int is_found = 0;
    pthread_mutex_lock(&endpoints.mutex);
    for (const struct strait_mpi_endpoint *endpoint = endpoints.first; endpoint != NULL;
         endpoint = endpoint->next_endpoint)
        is_found |= endpoint->port == port && endpoint->is_bound;
    pthread_mutex_unlock(&endpoints.mutex);
    return is_found;
}

static void init_condition(pthread_cond_t *condition) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

static strait_err open_endpoint(const strait_transport_config *config, void **out) {
    struct strait_mpi_endpoint *endpoint = NULL;
    if (strait_mpi_world() == NULL)
        return STRAIT_FAIL(STRAIT_EINVAL, "the mpi transport needs a job: see strait_mpi_join");
    STRAIT_TRY(strait_alloc(1, sizeof *endpoint, "MPI endpoint", (void **)&endpoint));
    endpoint->mpi = strait_mpi_world();
    endpoint->config = *config;
    endpoint->active_ns = strait_clock_ns();
    pthread_mutex_init(&endpoint->mutex, NULL);
    init_condition(&endpoint->wakes);
    add_endpoint(endpoint);
    *out = endpoint; // closed also after an error
    return strait_mpi_endpoint_reserve(endpoint, SPARE);
}

/* ---- waiting ---- */

/* Sleeps until a wake or `until_ns`, at most for a part of the silence so far. */
static void wait_a_little(struct strait_mpi_endpoint *endpoint, int64_t until_ns) {
    const int64_t now = strait_clock_ns();
    int64_t nap = (now - endpoint->active_ns) / NAP_SHARE;
    if (nap < NAP_MIN_NS) nap = NAP_MIN_NS;
    const int64_t most = strait_mpi_endpoint_is_busy(endpoint) ? NAP_BUSY_NS : NAP_MAX_NS;
    if (nap > most) nap = most;
    const int64_t due = strait_mpi_endpoint_next_due(endpoint);
    int64_t end = now + nap;
    if (due < end) end = due;
    if (until_ns < end) end = until_ns;
    if (end <= now) return;
    const struct timespec time = {.tv_sec = end / 1000000000, .tv_nsec = end % 1000000000};
    pthread_mutex_lock(&endpoint->mutex);
    if (!endpoint->is_woken)
        (void)pthread_cond_timedwait(&endpoint->wakes, &endpoint->mutex, &time);
    pthread_mutex_unlock(&endpoint->mutex);
}

static int was_woken(struct strait_mpi_endpoint *endpoint) {
    pthread_mutex_lock(&endpoint->mutex);
    const int is_woken = endpoint->is_woken;
    endpoint->is_woken = 0;
    pthread_mutex_unlock(&endpoint->mutex);
    return is_woken;
}

static int receive_envelope(void *self, int64_t until_ns, struct strait_envelope *out) {
    struct strait_mpi_endpoint *endpoint = self;
    for (;;) {
        if (strait_mpi_endpoint_poll(endpoint)) endpoint->active_ns = strait_clock_ns();
        if (strait_mpi_endpoint_take(endpoint, out)) return 1;
        if (was_woken(endpoint) || strait_clock_ns() >= until_ns) return 0;
        wait_a_little(endpoint, until_ns);
    }
}

static void wake_endpoint(void *self) {
    struct strait_mpi_endpoint *endpoint = self;
    pthread_mutex_lock(&endpoint->mutex);
    endpoint->is_woken = 1; // outlasts the signal, so that a wake between two waits is not lost
    pthread_cond_signal(&endpoint->wakes);
    pthread_mutex_unlock(&endpoint->mutex);
}

/* Sends the rest first, for at most the linger time: a peer that has gone takes nothing. */
static void close_endpoint(void **self) {
    struct strait_mpi_endpoint *endpoint = *self;
    const struct timespec nap = {.tv_nsec = FLUSH_NAP_NS};
    const int64_t until = strait_clock_ns() + (int64_t)endpoint->config.linger_ms * 1000000;
    while (strait_mpi_endpoint_is_sending(endpoint) && strait_clock_ns() < until)
        if (!strait_mpi_endpoint_poll(endpoint)) (void)nanosleep(&nap, NULL);
    remove_endpoint(endpoint);
    strait_mpi_endpoint_fini(endpoint);
    pthread_cond_destroy(&endpoint->wakes);
    pthread_mutex_destroy(&endpoint->mutex);
    strait_alloc_free(endpoint);
    *self = NULL;
}

/* ---- addresses ---- */

/* rank-R:PORT; returns 0 when it is something else. */
static int parse_address(const char *address, uint64_t *rank, uint64_t *port) {
    static const char start[] = "rank-";
    char *end = NULL;
    if (strncmp(address, start, sizeof start - 1) != 0) return 0;
    const char *digits = address + sizeof start - 1;
    *rank = strtoul(digits, &end, 10);
    if (end == digits || *end != ':') return 0;
    digits = end + 1;
    *port = strtoul(digits, &end, 10);
    return end != digits && *end == '\0' && *rank < STRAIT_MPI_RANKS && *port <= INT32_MAX / 2;
}

/* Every endpoint has a port of its own already; "rank-R:0" and an empty address ask for it. */
static strait_err bind_endpoint(void *self, const char *address, char out[STRAIT_ADDRESS_MAX]) {
    struct strait_mpi_endpoint *endpoint = self;
    uint64_t rank = (uint64_t)strait_mpi_rank(), port = 0;
    if (address[0] != '\0' && !parse_address(address, &rank, &port))
        return STRAIT_FAIL(STRAIT_EINVAL, "cannot listen at '%.80s': expected rank-%d:0", address,
                           strait_mpi_rank());
    if (rank != (uint64_t)strait_mpi_rank())
        return STRAIT_FAIL(STRAIT_EINVAL, "cannot listen at %.80s: it is of another rank", address);
    if (port != 0 && port != endpoint->port)
        return STRAIT_FAIL(STRAIT_EINUSE, "cannot listen at %.80s: it is of another endpoint",
                           address);
    pthread_mutex_lock(&endpoints.mutex);
    endpoint->is_bound = 1;
    pthread_mutex_unlock(&endpoints.mutex);
    (void)snprintf(out, STRAIT_ADDRESS_MAX, "rank-%d:%u", strait_mpi_rank(), endpoint->port);
    return STRAIT_OK;
}

/* Only ports of this rank can be looked up; others answer, or do not. */
static strait_err find_endpoint(void *self, const char *address, uint64_t *out) {
    (void)self;
    uint64_t rank = 0, port = 0;
    if (!parse_address(address, &rank, &port) || rank >= (uint64_t)strait_mpi_size())
        return STRAIT_FAIL(STRAIT_ECLOSED,
                           "cannot connect: '%.80s' is not rank-R:PORT of one of %d ranks", address,
                           strait_mpi_size());
    if (rank == (uint64_t)strait_mpi_rank() && !listens(port))
        return STRAIT_FAIL(STRAIT_ECLOSED, "cannot connect: no transport listens at %s", address);
    *out = rank << 32 | port;
    return STRAIT_OK;
}

/* ---- the table ---- */

static strait_err send_envelope(void *self, uint64_t to, struct strait_envelope *envelope) {
    struct strait_mpi_endpoint *endpoint = self;
    if (endpoint->broken != STRAIT_OK) return STRAIT_FAIL(endpoint->broken, "%s", endpoint->reason);
    return strait_mpi_endpoint_send(endpoint, to, envelope);
}

static strait_err check_endpoint(void *self, uint64_t number) {
    const struct strait_mpi_endpoint *endpoint = self;
    if (endpoint->broken != STRAIT_OK) return STRAIT_FAIL(endpoint->broken, "%s", endpoint->reason);
    return strait_mpi_check((int)(number >> 32));
}

static const struct strait_endpoint_ops ops = {
    .scheme = "mpi",
    .open = open_endpoint,
    .close = close_endpoint,
    .number = number_of,
    .bind = bind_endpoint,
    .find = find_endpoint,
    .send = send_envelope,
    .receive = receive_envelope,
    .wake = wake_endpoint,
    .check = check_endpoint,
};

static strait_err init(struct strait_transport *t) {
    return strait_envelope_init(t, &ops);
}

const struct strait_transport_ops strait_transport_mpi = {
    .scheme = "mpi", .init = init, STRAIT_ENVELOPE_TRANSPORT};
