/* envelope_endpoint.c - the calls of a transport of envelopes that neither send nor receive. */
#include "net/envelope/envelope.h"

strait_err strait_envelope_init(struct strait_transport *t, const struct strait_endpoint_ops *ops) {
    struct strait_envelope_transport *self = t->state;
    self->ops = ops;
    return ops->open(&t->config, &self->endpoint);
}

strait_err strait_envelope_listen(struct strait_transport *t, const char *address,
                                  char out[STRAIT_ADDRESS_MAX]) {
    const struct strait_envelope_transport *self = t->state;
    return self->ops->bind(self->endpoint, address, out);
}

void strait_envelope_pause(struct strait_link *link, int is_paused) {
    struct strait_envelope_link *l = link->state;
    l->is_paused = is_paused; // progress() delivers what was received meanwhile
    if (!is_paused) strait_envelope_wake(link->transport);
}

void strait_envelope_stats(struct strait_link *link, strait_link_stats *out) {
    const struct strait_envelope_link *l = link->state;
    *out = l->stats;
    out->queued_bytes = l->out.n_bytes;
}

void strait_envelope_wake(struct strait_transport *t) {
    const struct strait_envelope_transport *self = t->state;
    self->ops->wake(self->endpoint);
}
