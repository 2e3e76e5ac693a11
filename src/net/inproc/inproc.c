/* inproc.c - the transport between threads of one process: links that exchange envelopes, over the
 * endpoints of a network. */
#include "net/inproc/endpoint.h"

#include <stdio.h>

/* The table of operations has untyped pointers; these functions give them their type. */

static strait_err open_endpoint(const strait_transport_config *config, void **out) {
    struct strait_inproc_endpoint *endpoint = NULL;
    if (config->network == NULL)
        return STRAIT_FAIL(STRAIT_EINVAL, "the inproc transport needs config.network");
    STRAIT_TRY(strait_inproc_endpoint_open(config->network, &endpoint));
    *out = endpoint;
    return STRAIT_OK;
}

static void close_endpoint(void **endpoint) {
    struct strait_inproc_endpoint *closed = *endpoint;
    strait_inproc_endpoint_close(&closed);
    *endpoint = NULL;
}

static uint64_t number_of(void *endpoint) {
    return strait_inproc_endpoint_number(endpoint);
}

static strait_err bind_endpoint(void *endpoint, const char *address, char out[STRAIT_ADDRESS_MAX]) {
    STRAIT_TRY(strait_inproc_endpoint_bind(endpoint, address));
    (void)snprintf(out, STRAIT_ADDRESS_MAX, "%s", address);
    return STRAIT_OK;
}

static strait_err find_endpoint(void *endpoint, const char *address, uint64_t *out) {
    return strait_inproc_endpoint_find(endpoint, address, out);
}

static strait_err send_envelope(void *endpoint, uint64_t to, struct strait_envelope *envelope) {
    return strait_inproc_endpoint_send(endpoint, to, envelope);
}

static int receive_envelope(void *endpoint, int64_t until_ns, struct strait_envelope *out) {
    return strait_inproc_endpoint_receive(endpoint, until_ns, out);
}

static void wake_endpoint(void *endpoint) {
    strait_inproc_endpoint_wake(endpoint);
}

static const struct strait_endpoint_ops ops = {
    .scheme = "inproc",
    .open = open_endpoint,
    .close = close_endpoint,
    .number = number_of,
    .bind = bind_endpoint,
    .find = find_endpoint,
    .send = send_envelope,
    .receive = receive_envelope,
    .wake = wake_endpoint,
};

static strait_err init(struct strait_transport *t) {
    return strait_envelope_init(t, &ops);
}

const struct strait_transport_ops strait_transport_inproc = {
    .scheme = "inproc", .init = init, STRAIT_ENVELOPE_TRANSPORT};
