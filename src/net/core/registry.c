/* registry.c - the list of transports. The declarations are here rather than in headers so that
 * core includes nothing of the transports. */
#include "net/core/transport.h"

extern const struct strait_transport_ops strait_transport_inproc, strait_transport_mpi,
    strait_transport_tls;

const struct strait_transport_ops *const strait_transports[] = {
    &strait_transport_inproc,
    &strait_transport_mpi,
    &strait_transport_tls,
    NULL,
};
