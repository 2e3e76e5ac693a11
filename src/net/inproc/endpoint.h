/* endpoint.h - how inproc transports reach each other: a network of endpoints that keep envelopes
 * until they are due.
 *
 * Every function may be called by all threads. Envelopes are reused: after warm-up sending
 * allocates nothing. */
#pragma once

#include "net/envelope/envelope.h"

struct strait_inproc_network;

strait_err strait_inproc_network_open(struct strait_inproc_network **out);
/* Call after all its transports are closed. Accepts NULL. */
void strait_inproc_network_close(struct strait_inproc_network **network);

struct strait_inproc_endpoint;

/* Opens an endpoint without a name, which only receives answers. STRAIT_ENOMEM. */
strait_err strait_inproc_endpoint_open(struct strait_inproc_network *network,
                                       struct strait_inproc_endpoint **out);
/* Closes it with all envelopes inside; sets it to NULL. Accepts NULL. */
void strait_inproc_endpoint_close(struct strait_inproc_endpoint **endpoint);

/* Its number in the network; never reused. */
uint64_t strait_inproc_endpoint_number(const struct strait_inproc_endpoint *endpoint);

/* Gives the endpoint a name that others can dial. STRAIT_EINVAL when it is taken or too long. */
strait_err strait_inproc_endpoint_bind(struct strait_inproc_endpoint *endpoint, const char *name);
/* Finds the number of another endpoint of the same network by name. STRAIT_ECLOSED when there is
 * none. The endpoint may be closed at any time: strait_inproc_endpoint_send checks. */
strait_err strait_inproc_endpoint_find(struct strait_inproc_endpoint *endpoint, const char *name,
                                       uint64_t *out);

/* Copies the envelope from an endpoint into the one with number `to` and takes its message on
 * success. STRAIT_ECLOSED when the endpoint is closed. An envelope that is due at INT64_MAX is lost
 * on the way, which is a success. */
strait_err strait_inproc_endpoint_send(struct strait_inproc_endpoint *endpoint, uint64_t to,
                                       struct strait_envelope *envelope);

/* Waits until `until_ns` for an envelope that is due and copies it to *out; returns 0 when there
 * was none. strait_inproc_endpoint_wake ends the wait early. */
int strait_inproc_endpoint_receive(struct strait_inproc_endpoint *endpoint, int64_t until_ns,
                                   struct strait_envelope *out);
void strait_inproc_endpoint_wake(struct strait_inproc_endpoint *endpoint);
