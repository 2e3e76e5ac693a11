/* mesh.h - peers by identity: dial, redial, queue, measure.
 *
 * A mesh has a thread of its own, the net thread, that owns the transport. All functions here may
 * be called from any other thread. A peer is known by its key and named by a small number, from 0
 * in the order of strait_mesh_add. One side of each pair gives an address and dials; the other
 * waits. A link that breaks is dialled again, with growing pauses, unless the peer refused us.
 *
 * Messages sent while a link is down wait for it. When a link breaks, those under way are lost:
 * what to do then is for the layers above, which learn of it by a STRAIT_MSG_DOWN. */
#pragma once

#include "net/core/transport.h"

typedef struct strait_mesh_config {
    const char *scheme;                // "tls" or "inproc"
    strait_transport_config transport; // its pool is the mesh's own; leave it NULL
    size_t queue_bytes;                // bodies queued for one peer before send declines; 64 MiB
    size_t inbox_bytes;                // received and not taken before peers must wait; 256 MiB
    int redial_ms, redial_max_ms;      // pauses between attempts: 50, doubling up to 2000
} strait_mesh_config;

typedef struct strait_mesh_peer {
    char name[STRAIT_NAME_MAX]; // for messages to people
    strait_fingerprint key;
    const char *address;                // where to dial it, or several such with commas between,
                                        // to be tried in turn; NULL: it dials us. Copied
    const strait_emulate_spec *emulate; // our direction of its link; NULL: the config's. Copied
} strait_mesh_peer;

enum {
    STRAIT_PEERS_MAX = 1024,
    STRAIT_MESH_QUEUE = 64 * 1024 * 1024 // queue_bytes where the config has none
};

struct strait_mesh;

/* Starts the net thread. */
strait_err strait_mesh_open(const strait_mesh_config *config, struct strait_mesh **out);
/* Sends what is queued, for at most the linger time, says goodbye to all and ends the thread.
 * Messages taken from it stay valid. Accepts NULL. */
void strait_mesh_close(struct strait_mesh **mesh);

/* Where messages to send come from; lives as long as the mesh and its messages. */
struct strait_msg_pool *strait_mesh_pool(struct strait_mesh *mesh);

/* Writes the address that others can dial. */
strait_err strait_mesh_listen(struct strait_mesh *mesh, const char *address,
                              char out[STRAIT_ADDRESS_MAX]);

/* From now on this peer is let in, and dialled if it has an address. */
strait_err strait_mesh_add(struct strait_mesh *mesh, const strait_mesh_peer *peer, int *out);

/* Waits until the link to `peer` is open. STRAIT_ETIMEDOUT says why it is not yet; when the peer
 * refused us or we it, that error comes at once. */
strait_err strait_mesh_wait_up(struct strait_mesh *mesh, int peer, int timeout_ms);
int strait_mesh_is_up(struct strait_mesh *mesh, int peer);

/* Takes *msg and clears it on STRAIT_OK. STRAIT_EAGAIN when too much is queued for this peer. */
strait_err strait_mesh_send(struct strait_mesh *mesh, int peer, struct strait_msg **msg);
/* The same, but waits for room. */
strait_err strait_mesh_send_wait(struct strait_mesh *mesh, int peer, int timeout_ms,
                                 struct strait_msg **msg);

/* Waits for the next message of any peer, the most urgent first, and hands it to the caller, who
 * must close it; msg->peer says whose. STRAIT_MSG_UP and STRAIT_MSG_DOWN come this way too and
 * overtake all but control messages. timeout_ms -1 waits for ever; on STRAIT_ETIMEDOUT *out is
 * untouched. */
strait_err strait_mesh_receive(struct strait_mesh *mesh, int timeout_ms, struct strait_msg **out);

/* Counts of this link and those before it to the same peer. */
strait_err strait_mesh_stats(struct strait_mesh *mesh, int peer, strait_link_stats *out);

/* Of its addresses the one that was dialled last; empty: none was yet. */
strait_err strait_mesh_last_address(struct strait_mesh *mesh, int peer,
                                    char out[STRAIT_ADDRESS_MAX]);

/* How many strangers were turned away so far, and the words of the latest. */
int64_t strait_mesh_refusals(struct strait_mesh *mesh, char out[STRAIT_REASON_MAX]);
