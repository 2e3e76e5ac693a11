/* routes.c - how the two ends of each boundary reach each other.
 *
 * One dials the other, or the reverse, or both meet at the relay. Which of them works is only known
 * when it was tried: an announced address may be wrong, a router may let nobody in, and a link that
 * opens may lose everything in one direction. So the routes of a pair of workers are tried one
 * after the other, one per generation, and those that failed are remembered for as long as the pair
 * is. */
#include "net/relay/relay_secret.h"
#include "swarm/host/state.h"

#include <string.h>

/* How the owners of stages i and i + 1, the ends of boundary `i`, connect to each other. */
enum route {
    PREV_DIALS,
    NEXT_DIALS,
    VIA_RELAY,
    N_ROUTES
};

/* Returns the memory of the pair at boundary `i`: its own, or the oldest, which is forgotten. */
static struct host_route_memory *memory_of(struct host *h, int i) {
    const strait_fingerprint *prev = &h->coordinator.workers[h->coordinator.owner[i]].key;
    const strait_fingerprint *next = &h->coordinator.workers[h->coordinator.owner[i + 1]].key;
    for (int k = 0; k < STRAIT_HOST_ROUTES; k++) {
        struct host_route_memory *memory = &h->routes.memory[k];
        if (strait_fingerprint_equal(&memory->prev, prev) &&
            strait_fingerprint_equal(&memory->next, next))
            return memory;
    }
    struct host_route_memory *memory = &h->routes
                                            .memory[h->routes.n_memories++ % STRAIT_HOST_ROUTES];
    *memory = (struct host_route_memory){*prev, *next, 0};
    return memory;
}

/* Returns the connection of the worker that is dialled on a route of boundary `i`; NULL: it is the
 * relay, or the worker is gone. */
static struct connection *listener_of(struct host *h, int i, enum route route) {
    if (route == VIA_RELAY) return NULL;
    return strait_host_connection(h, h->coordinator.owner[route == PREV_DIALS ? i + 1 : i]);
}

static int is_possible(struct host *h, int i, enum route route) {
    const int dials = h->coordinator.owner[route == PREV_DIALS ? i : i + 1];
    if (route == VIA_RELAY) return h->spec->relay != NULL;
    return strait_host_can_dial(strait_host_connection(h, dials), listener_of(h, i, route));
}

/* Returns the best possible route of boundary `i` that has not failed; -1: all have. A worker that
 * others could not dial dials itself, if possible; the relay comes before such a worker. */
static int find_route(struct host *h, int i) {
    const unsigned failed = memory_of(h, i)->failed;
    int best = -1;
    int fewest = 0;
    for (int route = 0; route < N_ROUTES; route++) {
        const struct connection *listener = listener_of(h, i, (enum route)route);
        const int n_missed = listener != NULL ? 2 * listener->n_missed : 1;
        if ((failed >> route & 1u) != 0 || !is_possible(h, i, (enum route)route)) continue;
        if (best >= 0 && n_missed >= fewest) continue;
        best = route;
        fewest = n_missed;
    }
    return best;
}

/* When all have failed they are tried again: the coordinator leaves the pair together only if there
 * is no other placement. */
static enum route choose_route(struct host *h, int i) {
    int route = find_route(h, i);
    if (route < 0) {
        memory_of(h, i)->failed = 0;
        route = find_route(h, i);
    }
    if (route >= 0) return (enum route)route;
    strait_host_note(h, "stages %d and %d cannot reach each other: restart the host with a relay",
                     i, i + 1);
    return PREV_DIALS;
}

int strait_host_route_failed(struct host *h, int i) {
    if (i < 0 || i + 1 >= h->coordinator.config.n_stages || h->coordinator.owner[i] < 0 ||
        h->coordinator.owner[i + 1] < 0)
        return 0;
    struct connection *listener = listener_of(h, i, (enum route)h->routes.chosen[i]);
    if (listener != NULL && h->coordinator.phase == STRAIT_PHASE_CONNECT) listener->n_missed++;
    memory_of(h, i)->failed |= 1u << h->routes.chosen[i];
    return find_route(h, i) >= 0;
}

void strait_host_routes_work(struct host *h) {
    for (int i = 0; i + 1 < h->coordinator.config.n_stages; i++) {
        struct connection *listener = listener_of(h, i, (enum route)h->routes.chosen[i]);
        if (listener != NULL) listener->n_missed = 0;
    }
}

/* Draws an address at the relay with a random token, which only the two neighbours learn. */
static void draw_relay_address(struct host *h, int i) {
    strait_relay_token token;
    h->routes.relay_address[i][0] = '\0';
    if (strait_identity_random(token.bytes, sizeof token.bytes) == STRAIT_OK)
        (void)strait_relay_secret_address(h->spec->relay_secret, h->spec->relay, &token,
                                          h->routes.relay_address[i],
                                          sizeof h->routes.relay_address[i]);
}

/* Tasks are sent in the order of stages, so the route is chosen when the previous stage is told. */
void strait_host_describe_peer(struct host *h, int i, int is_next, strait_task_peer *peer) {
    const int worker = h->coordinator.owner[i + (is_next != 0)];
    const struct connection *connection = strait_host_connection(h, worker);
    const int is_new = is_next && h->coordinator.phase == STRAIT_PHASE_LISTEN;
    if (is_new) h->routes.chosen[i] = (int)choose_route(h, i);
    if (is_new && h->routes.chosen[i] == VIA_RELAY) draw_relay_address(h, i);
    const enum route route = (enum route)h->routes.chosen[i];
    peer->is_present = 1;
    peer->key = h->coordinator.workers[worker].key;
    peer->is_near = strait_host_is_near(
        connection, strait_host_connection(h, h->coordinator.owner[i + (is_next == 0)]));
    peer->must_listen = route == VIA_RELAY && !is_next;
    if (route == VIA_RELAY)
        memcpy(peer->address, h->routes.relay_address[i], sizeof peer->address);
    else if (connection != NULL && route == (is_next ? PREV_DIALS : NEXT_DIALS))
        memcpy(peer->address, connection->address, sizeof peer->address);
}
