/* transport.c - opening transports and links; everything else is passed on to the table. */
#include "net/core/transport.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum {
    MESSAGE_MAX = 64 * 1024 * 1024, // bounds what a peer can make us allocate
    QUEUE_BYTES = 1024 * 1024       // per link; the mesh queues the rest
};

static void set_defaults(strait_transport_config *c) {
    if (c->peer_timeout_ms == 0) c->peer_timeout_ms = 10000;
    /* Three pings fit into a timeout, so that one lost or late ping does not end a link. */
    if (c->ping_ms == 0) c->ping_ms = c->peer_timeout_ms < 3000 ? c->peer_timeout_ms / 3 + 1 : 1000;
    if (c->handshake_ms == 0) c->handshake_ms = 10000;
    if (c->linger_ms == 0) c->linger_ms = 2000;
    if (c->message_max == 0) c->message_max = MESSAGE_MAX;
    if (c->queue_bytes == 0) c->queue_bytes = QUEUE_BYTES;
}

/* Mistakes of the calling program, not of a user. */
static strait_err check_config(const strait_transport_config *c) {
    if (c->pool == NULL || c->identity == NULL)
        return STRAIT_FAIL(STRAIT_EINVAL, "a transport needs a message pool and an identity");
    if (c->n_streams < 0 || c->n_streams > STRAIT_STREAMS_MAX)
        return STRAIT_FAIL(STRAIT_EINVAL, "%d streams per link, expected 0 (automatic) to %d",
                           c->n_streams, STRAIT_STREAMS_MAX);
    return STRAIT_OK;
}

strait_err strait_transport_open(const char *scheme, const struct strait_transport_events *events,
                                 void *user, const strait_transport_config *config,
                                 struct strait_transport **out) {
    const struct strait_transport_ops *ops = NULL;
    for (int i = 0; strait_transports[i] != NULL; i++)
        if (strcmp(strait_transports[i]->scheme, scheme) == 0) ops = strait_transports[i];
    if (ops == NULL)
        return STRAIT_FAIL(STRAIT_EINVAL, "unknown transport '%s': expected inproc, mpi or tls",
                           scheme);
    STRAIT_TRY(check_config(config));
    void *memory = NULL;
    /* One zeroed allocation holds the transport and its private state. */
    STRAIT_TRY(strait_alloc(1, sizeof(struct strait_transport) + ops->state_size, scheme, &memory));
    struct strait_transport *t = memory;
    *t = (struct strait_transport){
        .ops = ops, .events = events, .user = user, .config = *config, .state = t + 1};
    set_defaults(&t->config);
    const strait_err err = ops->init(t);
    if (err != STRAIT_OK) { // fini tolerates what init left
        strait_transport_close(&t);
        return err;
    }
    *out = t;
    return STRAIT_OK;
}

/* fini runs first, since it delivers closed() events that may still use the transport. */
void strait_transport_close(struct strait_transport **t) {
    if (*t == NULL) return;
    (*t)->ops->fini(*t);
    strait_alloc_free(*t);
    *t = NULL;
}

/* Ids are never reused, so that a late message for a closed link cannot reach a new one. */
strait_err strait_link_new(struct strait_transport *t, struct strait_link **out) {
    static atomic_uint_least64_t next_id = 1; // shared: in-process transports address links by id
    void *memory = NULL;
    STRAIT_TRY(strait_alloc(1, sizeof(struct strait_link) + t->ops->link_size, "link", &memory));
    struct strait_link *link = memory;
    link->transport = t;
    link->id = atomic_fetch_add(&next_id, 1);
    link->emulate = t->config.emulate;
    link->message_max = t->config.message_max;
    link->state = link + 1;
    *out = link;
    return STRAIT_OK;
}

void strait_link_free(struct strait_link *link) {
    strait_alloc_free(link);
}

strait_err strait_transport_listen(struct strait_transport *t, const char *address,
                                   char out[STRAIT_ADDRESS_MAX]) {
    return t->ops->listen(t, address, out);
}

strait_err strait_transport_dial(struct strait_transport *t, const char *address,
                                 strait_dial_params params, struct strait_link **out) {
    struct strait_link *link = NULL;
    STRAIT_TRY(strait_link_new(t, &link));
    link->is_dialled = 1; // the peer must then prove the expected key
    link->user = params.user;
    if (params.emulate != NULL) link->emulate = *params.emulate;
    link->dial_classes = params.dial_classes != 0 ? params.dial_classes : t->config.dial_classes;
    link->has_expected = params.expected != NULL;
    if (params.expected != NULL) link->expected = *params.expected;
    (void)snprintf(link->address, sizeof link->address, "%s", address);
    const strait_err err = t->ops->dial(link, address);
    if (err != STRAIT_OK) {
        strait_link_prefix_error(link);
        strait_link_free(link);
        return err;
    }
    *out = link;
    return STRAIT_OK;
}

strait_err strait_link_send(struct strait_link *link, struct strait_msg **msg) {
    return link->transport->ops->send(link, msg);
}

strait_err strait_link_queue(const struct strait_link *link, int is_open,
                             struct strait_priority_queue *queue, struct strait_msg **msg) {
    const strait_transport_config *config = &link->transport->config;
    if (!is_open)
        return STRAIT_FAIL(STRAIT_ECLOSED, "cannot send to '%s' at %s: the link is not open",
                           link->peer_name, link->address);
    if ((*msg)->size > config->message_max)
        return STRAIT_FAIL(STRAIT_EINVAL,
                           "cannot send a message of %zu bytes to '%s', expected at most %zu",
                           (*msg)->size, link->peer_name, config->message_max);
    if (strait_priority_queue_is_full(queue, *msg, config->queue_bytes)) return STRAIT_EAGAIN;
    if ((*msg)->queued_ns == 0) (*msg)->queued_ns = strait_clock_ns();
    strait_priority_queue_push(queue, msg);
    return STRAIT_OK;
}

void strait_link_close(struct strait_link *link, strait_err why) {
    link->transport->ops->close(link, why);
}

/* Anyone who reads the token of a relay address in a log could take the place of a peer there. */
void strait_peer_describe(const char *address, const strait_fingerprint *key,
                          char out[STRAIT_PEER_TEXT]) {
    static const char relay[] = "relay://";
    size_t length = strlen(address);
    if (strncmp(address, relay, sizeof relay - 1) == 0)
        length = sizeof relay - 1 + strcspn(address + sizeof relay - 1, "/");
    char digits[STRAIT_FINGERPRINT_TEXT] = "";
    if (key != NULL) strait_fingerprint_text(key, digits);
    (void)snprintf(out, STRAIT_PEER_TEXT, key != NULL ? "%.*s (key %.8s)" : "%.*s",
                   length < 120 ? (int)length : 120, address, digits);
}

void strait_link_prefix_error(const struct strait_link *link) {
    static const strait_fingerprint none;
    /* A dialled link knows whom it expects before the peer has proven its key. */
    const strait_fingerprint *key = &link->peer;
    if (strait_fingerprint_equal(key, &none)) key = link->has_expected ? &link->expected : NULL;
    char text[STRAIT_PEER_TEXT];
    strait_peer_describe(link->address, key, text);
    strait_err_prefix("%s", text);
}

/* A dialled link accepts only the key it expects; who dials us is for the owner to decide. */
strait_err strait_transport_authorize(struct strait_transport *t, const struct strait_link *link,
                                      const strait_fingerprint *peer,
                                      strait_emulate_spec *emulate) {
    if (link == NULL || !link->has_expected) return t->events->admit(t->user, peer, emulate);
    if (strait_fingerprint_equal(&link->expected, peer)) return STRAIT_OK;
    char expected[STRAIT_FINGERPRINT_TEXT], found[STRAIT_FINGERPRINT_TEXT];
    strait_fingerprint_text(&link->expected, expected);
    strait_fingerprint_text(peer, found);
    return STRAIT_FAIL(
        STRAIT_EAUTH,
        "key %.16s... answered where %.16s... was expected: another program listens at "
        "this address, or the peer has a new key file",
        found, expected);
}
