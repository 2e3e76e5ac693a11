/* mesh.h - links to peers by identity: dials, redials, queues and measures.
 *
 * A mesh has a thread of its own, the net thread, which owns the transport. All functions here may
 * be called from any other thread. A peer is identified by its key and numbered from 0 in the order
 * of strait_mesh_add. One side of each pair has the other's address and dials; the other side
 * waits. A broken link is dialled again, with growing pauses, unless one side refused the other.
 *
 * Messages sent while a link is down wait for it. When a link breaks, messages in flight are lost:
 * the modules above decide what to do, and learn of it by a STRAIT_MSG_DOWN. */
#pragma once

#include "net/core/transport.h"

typedef struct strait_mesh_config {
    const char *scheme;                // "tls" or "inproc"
    strait_transport_config transport; // leave its pool NULL: the mesh has its own
    size_t queue_bytes;                // bodies queued for one peer before send declines; 64 MiB
    size_t inbox_bytes; // bodies received and not yet taken before links are paused; 256 MiB
    int redial_ms, redial_max_ms; // pause between attempts: 50, doubling up to 2000
    int drops_unsent; // messages queued for a link that was lost are not sent on the next one
} strait_mesh_config;

typedef struct strait_mesh_peer {
    char name[STRAIT_NAME_MAX]; // for messages to people
    strait_fingerprint key;
    const char *address; // where to dial it: one address, or several separated by commas that are
                         // tried in turn; NULL: the peer dials us. Copied
    const strait_emulate_spec *emulate; // our direction of its link; NULL: the config's. Copied
    unsigned dial_classes; // kinds of addresses to dial (address_class.h); 0: the config's
} strait_mesh_peer;

enum {
    STRAIT_PEERS_MAX = 1024,
    STRAIT_MESH_QUEUE = 64 * 1024 * 1024 // default of queue_bytes
};

struct strait_mesh;

/* Opens the transport and starts the net thread. STRAIT_EINVAL, STRAIT_ENOMEM. */
strait_err strait_mesh_open(const strait_mesh_config *config, struct strait_mesh **out);
/* Sends what is queued, for at most the linger time, closes all links and ends the thread.
 * Messages taken from the mesh stay valid. Accepts NULL. */
void strait_mesh_close(struct strait_mesh **mesh);

/* The pool for messages to send; it lives as long as the mesh and its messages. */
struct strait_msg_pool *strait_mesh_pool(struct strait_mesh *mesh);

/* Listens and writes the address that others can dial. STRAIT_EINVAL. */
strait_err strait_mesh_listen(struct strait_mesh *mesh, const char *address,
                              char out[STRAIT_ADDRESS_MAX]);

/* From now on this peer is admitted, and dialled if it has an address. *out is its number.
 * STRAIT_EINVAL when the key is known already or there are too many peers. */
strait_err strait_mesh_add(struct strait_mesh *mesh, const strait_mesh_peer *peer, int *out);

/* Waits until the link to `peer` is open. STRAIT_ETIMEDOUT gives the latest reason why it is not;
 * when one side refused the other, STRAIT_EAUTH or STRAIT_EPROTO is returned at once. */
strait_err strait_mesh_wait_up(struct strait_mesh *mesh, int peer, int timeout_ms);
int strait_mesh_is_up(struct strait_mesh *mesh, int peer);

/* Takes *msg and clears it on STRAIT_OK. STRAIT_EAGAIN when too much is queued for this peer. */
strait_err strait_mesh_send(struct strait_mesh *mesh, int peer, struct strait_msg **msg);
/* The same, but waits until the queue has capacity. STRAIT_ETIMEDOUT. */
strait_err strait_mesh_send_wait(struct strait_mesh *mesh, int peer, int timeout_ms,
                                 struct strait_msg **msg);

/* Waits for the next message of any peer, the most urgent first. It then belongs to the caller, who
 * closes it; msg->peer is its sender. STRAIT_MSG_UP and STRAIT_MSG_DOWN are received here too, with
 * the priority of control messages. timeout_ms -1 waits without limit; on STRAIT_ETIMEDOUT *out is
 * not changed. */
strait_err strait_mesh_receive(struct strait_mesh *mesh, int timeout_ms, struct strait_msg **out);

/* Counters of the current link to `peer` and of all earlier ones. */
strait_err strait_mesh_stats(struct strait_mesh *mesh, int peer, strait_link_stats *out);

/* Which of the peer's addresses was dialled last; empty before the first attempt. */
strait_err strait_mesh_last_address(struct strait_mesh *mesh, int peer,
                                    char out[STRAIT_ADDRESS_MAX]);

/* The numeric address at the other end of the latest link to `peer`; empty before the first. */
strait_err strait_mesh_remote(struct strait_mesh *mesh, int peer, char out[STRAIT_ADDRESS_MAX]);

/* How many unknown peers were refused so far, and the reason of the latest refusal. */
int64_t strait_mesh_refusals(struct strait_mesh *mesh, char out[STRAIT_REASON_MAX]);
