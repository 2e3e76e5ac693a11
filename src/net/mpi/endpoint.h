/* endpoint.h - an endpoint on this rank: what it sends and what it receives, over MPI.
 *
 * All calls of MPI return at once. What is under way is tested again in the next poll, and a wait
 * between two polls grows with the silence, so that ranks that share a core leave it to each other.
 */
#pragma once

#include "net/mpi/wire.h"
#include "net/mpi/world.h"

#include <pthread.h>

/* An envelope that waits until it is due, or is being sent. */
struct strait_mpi_outgoing {
    struct strait_mpi_outgoing *next;
    uint64_t to; // number of an endpoint
    int64_t due_ns;
    unsigned char head[STRAIT_MPI_HEAD];
    size_t head_bytes;
    struct strait_msg *body; // NULL: none
    strait_mpi_request requests[2];
    int is_done[2];
};

/* An envelope whose head has arrived. */
struct strait_mpi_incoming {
    struct strait_mpi_incoming *next;
    int source; // rank
    struct strait_envelope envelope;
    struct strait_frame_reader reader;
    strait_mpi_request request; // of the body
    int is_begun;               // the body is being received
    int is_complete;
};

struct strait_mpi_endpoint {
    const strait_mpi_module *mpi;
    struct strait_mpi_endpoint *next_endpoint; // of this process
    uint32_t port;
    int is_bound;
    strait_transport_config config;

    struct strait_mpi_outgoing *waiting; // sorted by due time
    struct strait_mpi_outgoing *sending, *spare_out;
    struct strait_mpi_incoming *arriving, *last_arriving, *spare_in;
    unsigned char head[STRAIT_MPI_HEAD]; // being received
    strait_mpi_request head_request;
    int is_listening;

    strait_err broken; // MPI failed or a rank broke the protocol: no link works any more
    char reason[STRAIT_BYE_REASON_MAX];

    int64_t active_ns; // when something was last sent or received
    pthread_mutex_t mutex;
    pthread_cond_t wakes;
    int is_woken; // guarded by mutex
};

/* The tag of the heads that an endpoint receives; that of the bodies is the next. */
int strait_mpi_endpoint_tag(uint64_t number);

/* Begins to send an envelope, or keeps it until it is due; takes its message on success.
 * STRAIT_ENOMEM.
 */
strait_err strait_mpi_endpoint_send(struct strait_mpi_endpoint *endpoint, uint64_t to,
                                    struct strait_envelope *envelope);

/* Makes progress with everything under way; returns whether there was any. */
int strait_mpi_endpoint_poll(struct strait_mpi_endpoint *endpoint);

/* Takes the next envelope that has arrived completely; returns 0 when there is none. */
int strait_mpi_endpoint_take(struct strait_mpi_endpoint *endpoint, struct strait_envelope *out);

/* When the next envelope is due to be sent; INT64_MAX: none waits. */
int64_t strait_mpi_endpoint_next_due(const struct strait_mpi_endpoint *endpoint);
/* Whether MPI is moving a message to or from this endpoint, which needs polls of both ranks. */
int strait_mpi_endpoint_is_busy(const struct strait_mpi_endpoint *endpoint);

/* Whether something remains to be sent to a rank that has not ended. */
int strait_mpi_endpoint_is_sending(const struct strait_mpi_endpoint *endpoint);

/* Allocates ahead, so that the first messages of a measured step allocate nothing. */
strait_err strait_mpi_endpoint_reserve(struct strait_mpi_endpoint *endpoint, int n);

/* Frees everything but what MPI still uses, which strait_mpi_endpoint_free_rest frees after MPI has
 * ended. */
void strait_mpi_endpoint_fini(struct strait_mpi_endpoint *endpoint);
void strait_mpi_endpoint_free_rest(void);
