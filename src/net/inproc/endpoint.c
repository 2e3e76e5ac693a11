/* endpoint.c - see endpoint.h. One mutex per network guards all endpoints: envelopes are moved, not
 * their messages copied, so it is held only for moments. */
#include "net/inproc/endpoint.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

enum {
    SPARE_ENVELOPES = 16 // allocated per endpoint: as many as an idle link has in flight
};

struct strait_inproc_endpoint { // guarded by network->mutex
    struct strait_inproc_endpoint *next;
    struct strait_inproc_network *network;
    uint64_t number;
    char name[STRAIT_NAME_MAX];
    struct strait_envelope *first; // sorted by due time
    struct strait_envelope *last;  // most envelopes are appended
    int is_woken;
    pthread_cond_t arrived;
};

struct strait_inproc_network {
    pthread_mutex_t mutex;
    struct strait_inproc_endpoint *endpoints; // guarded by mutex
    struct strait_envelope *spare;            // guarded by mutex
    uint64_t n_opened;                        // guarded by mutex; the number of the latest endpoint
};

strait_err strait_inproc_network_open(struct strait_inproc_network **out) {
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(struct strait_inproc_network), "inproc network", &memory));
    struct strait_inproc_network *network = memory;
    pthread_mutex_init(&network->mutex, NULL);
    *out = network;
    return STRAIT_OK;
}

static void free_envelopes(struct strait_envelope **first) {
    while (*first != NULL) {
        struct strait_envelope *envelope = *first;
        *first = envelope->next;
        strait_msg_close(&envelope->msg);
        strait_alloc_free(envelope);
    }
}

void strait_inproc_network_close(struct strait_inproc_network **network) {
    if (*network == NULL) return;
    free_envelopes(&(*network)->spare);
    pthread_mutex_destroy(&(*network)->mutex);
    strait_alloc_free(*network);
    *network = NULL;
}

/* Allocated ahead, so that the first messages of a measured step allocate nothing. */
static strait_err add_spare_envelopes(struct strait_inproc_network *network, int n) {
    for (int i = 0; i < n; i++) {
        void *memory = NULL;
        STRAIT_TRY(strait_alloc(1, sizeof(struct strait_envelope), "inproc envelope", &memory));
        struct strait_envelope *envelope = memory;
        pthread_mutex_lock(&network->mutex);
        envelope->next = network->spare;
        network->spare = envelope;
        pthread_mutex_unlock(&network->mutex);
    }
    return STRAIT_OK;
}

strait_err strait_inproc_endpoint_open(struct strait_inproc_network *network,
                                       struct strait_inproc_endpoint **out) {
    STRAIT_TRY(add_spare_envelopes(network, SPARE_ENVELOPES));
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(struct strait_inproc_endpoint), "inproc endpoint", &memory));
    struct strait_inproc_endpoint *endpoint = memory;
    endpoint->network = network;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&endpoint->arrived, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_lock(&network->mutex);
    endpoint->number = ++network->n_opened;
    endpoint->next = network->endpoints;
    network->endpoints = endpoint;
    pthread_mutex_unlock(&network->mutex);
    *out = endpoint;
    return STRAIT_OK;
}

uint64_t strait_inproc_endpoint_number(const struct strait_inproc_endpoint *endpoint) {
    return endpoint->number;
}

void strait_inproc_endpoint_close(struct strait_inproc_endpoint **endpoint) {
    struct strait_inproc_endpoint *b = *endpoint;
    if (b == NULL) return;
    pthread_mutex_lock(&b->network->mutex);
    struct strait_inproc_endpoint **at = &b->network->endpoints;
    while (*at != b)
        at = &(*at)->next;
    *at = b->next;
    pthread_mutex_unlock(&b->network->mutex);
    free_envelopes(&b->first);
    pthread_cond_destroy(&b->arrived);
    strait_alloc_free(b);
    *endpoint = NULL;
}

/* Call with the network locked. */
static struct strait_inproc_endpoint *find(const struct strait_inproc_network *network,
                                           const char *name) {
    struct strait_inproc_endpoint *endpoint = network->endpoints;
    while (endpoint != NULL && strcmp(endpoint->name, name) != 0)
        endpoint = endpoint->next;
    return endpoint;
}

strait_err strait_inproc_endpoint_bind(struct strait_inproc_endpoint *endpoint, const char *name) {
    const size_t bytes = strlen(name) + 1;
    if (bytes == 1 || bytes > sizeof endpoint->name)
        return STRAIT_FAIL(STRAIT_EINVAL,
                           "cannot listen at '%.80s': an inproc name has 1 to %zu characters", name,
                           sizeof endpoint->name - 1);
    pthread_mutex_lock(&endpoint->network->mutex);
    const int is_taken = find(endpoint->network, name) != NULL;
    if (!is_taken) memcpy(endpoint->name, name, bytes);
    pthread_mutex_unlock(&endpoint->network->mutex);
    if (is_taken)
        return STRAIT_FAIL(STRAIT_EINUSE, "cannot listen at %s: another transport listens there",
                           name);
    return STRAIT_OK;
}

strait_err strait_inproc_endpoint_find(struct strait_inproc_endpoint *endpoint, const char *name,
                                       uint64_t *out) {
    struct strait_inproc_network *network = endpoint->network;
    pthread_mutex_lock(&network->mutex);
    const struct strait_inproc_endpoint *found = name[0] != 0 ? find(network, name) : NULL;
    const uint64_t number = found != NULL ? found->number : 0;
    pthread_mutex_unlock(&network->mutex);
    if (number == 0)
        return STRAIT_FAIL(STRAIT_ECLOSED, "cannot connect: no transport listens at %s", name);
    *out = number;
    return STRAIT_OK;
}

/* Call with the network locked. */
static strait_err insert(struct strait_inproc_network *network, uint64_t number,
                         const struct strait_envelope *content) {
    /* Looked up under the mutex: the peer's thread may have freed its endpoint. */
    struct strait_inproc_endpoint *to = network->endpoints;
    while (to != NULL && to->number != number)
        to = to->next;
    if (to == NULL) return STRAIT_FAIL(STRAIT_ECLOSED, "the inproc peer has closed");
    struct strait_envelope *envelope = network->spare;
    if (envelope != NULL) {
        network->spare = envelope->next;
    } else {
        void *memory = NULL;
        STRAIT_TRY(strait_alloc(1, sizeof *envelope, "inproc envelope", &memory));
        envelope = memory;
    }
    *envelope = *content;
    /* Envelopes of one link are due in order; only those of faster links have to be sorted in. */
    const int is_latest = to->last != NULL && to->last->due_ns <= envelope->due_ns;
    struct strait_envelope **at = is_latest ? &to->last->next : &to->first;
    while (*at != NULL && (*at)->due_ns <= envelope->due_ns)
        at = &(*at)->next;
    envelope->next = *at;
    *at = envelope;
    if (envelope->next == NULL) to->last = envelope;
    pthread_cond_signal(&to->arrived);
    return STRAIT_OK;
}

strait_err strait_inproc_endpoint_send(struct strait_inproc_endpoint *endpoint, uint64_t to,
                                       struct strait_envelope *envelope) {
    struct strait_inproc_network *network = endpoint->network;
    if (envelope->due_ns == INT64_MAX) { // dropped by the emulated link
        strait_msg_close(&envelope->msg);
        return STRAIT_OK;
    }
    pthread_mutex_lock(&network->mutex);
    const strait_err err = insert(network, to, envelope);
    pthread_mutex_unlock(&network->mutex);
    if (err == STRAIT_OK) envelope->msg = NULL;
    return err;
}

/* Waits until an envelope is due, the deadline passes or another thread wakes us. Call with the
 * network locked. */
static void wait_for_envelope(struct strait_inproc_endpoint *endpoint, int64_t until_ns) {
    while (!endpoint->is_woken) {
        /* An earlier envelope may have arrived meanwhile: compute the deadline anew. */
        int64_t wait_ns = until_ns;
        if (endpoint->first != NULL && endpoint->first->due_ns < wait_ns)
            wait_ns = endpoint->first->due_ns;
        if (wait_ns <= strait_clock_ns()) return;
        if (wait_ns == INT64_MAX) {
            pthread_cond_wait(&endpoint->arrived, &endpoint->network->mutex);
            continue;
        }
        const struct timespec until = {.tv_sec = wait_ns / 1000000000,
                                       .tv_nsec = wait_ns % 1000000000};
        pthread_cond_timedwait(&endpoint->arrived, &endpoint->network->mutex, &until);
    }
}

int strait_inproc_endpoint_receive(struct strait_inproc_endpoint *endpoint, int64_t until_ns,
                                   struct strait_envelope *out) {
    struct strait_inproc_network *network = endpoint->network;
    pthread_mutex_lock(&network->mutex);
    wait_for_envelope(endpoint, until_ns);
    endpoint->is_woken = 0;
    struct strait_envelope *envelope = endpoint->first;
    const int has_envelope = envelope != NULL && envelope->due_ns <= strait_clock_ns();
    if (has_envelope) {
        *out = *envelope;
        endpoint->first = envelope->next;
        if (endpoint->first == NULL) endpoint->last = NULL;
        envelope->msg = NULL;
        envelope->next = network->spare;
        network->spare = envelope;
    }
    pthread_mutex_unlock(&network->mutex);
    return has_envelope;
}

/* The flag outlasts the signal, so that a wake between two waits is not lost. */
void strait_inproc_endpoint_wake(struct strait_inproc_endpoint *endpoint) {
    pthread_mutex_lock(&endpoint->network->mutex);
    endpoint->is_woken = 1;
    pthread_cond_signal(&endpoint->arrived);
    pthread_mutex_unlock(&endpoint->network->mutex);
}
