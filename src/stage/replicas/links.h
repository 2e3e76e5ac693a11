/* links.h - the peers that one replica of a stage exchanges messages with: the replicas of the
 * previous stage and of the next, which cross microbatches with it, and the other replicas of its
 * own stage, which sum gradients with it. Used by the thread of a service. */
#pragma once

#include "config/run_plan.h"
#include "net/mesh/mesh.h"

/* Whose replicas a peer is one of. */
typedef enum strait_stage_side {
    STRAIT_SIDE_PREV,
    STRAIT_SIDE_SAME,
    STRAIT_SIDE_NEXT,
    STRAIT_SIDES,
} strait_stage_side;

typedef struct strait_stage_links {
    struct strait_mesh *mesh;                     // borrowed; NULL: there are no links
    int n[STRAIT_SIDES];                          // replicas of each side that were added so far
    int peers[STRAIT_SIDES][STRAIT_RUN_REPLICAS]; // of the mesh, by replica; -1: none
    uint64_t seen[STRAIT_SIDES];                  // bytes received that were counted
} strait_stage_links;

/* Which replica of its stage one is, and how many each side has. */
typedef struct strait_stage_replicas {
    int replica;
    int n[STRAIT_SIDES]; // STRAIT_SIDE_SAME: this one included
    int most;            // of any stage of the run: the order of groups follows from it
} strait_stage_replicas;

/* Enters them in an elastic plan of a replica of `stage`. STRAIT_EPROTO: more than it has memory
 * for. */
strait_err strait_stage_replicas_apply(const strait_stage_replicas *replicas, int stage,
                                       strait_run_plan *plan);

/* No peers yet. */
void strait_stage_links_init(strait_stage_links *links, struct strait_mesh *mesh);

/* Who a replica is, and where it listens; NULL or "": it dials. Both are borrowed. */
typedef struct strait_stage_peer {
    const strait_fingerprint *key;
    const char *address;
} strait_stage_peer;

/* Adds a replica of `stage` or of a neighbour to the mesh and notes it; it is dialled if it has an
 * address. STRAIT_EPROTO: the plan has no such replica. */
strait_err strait_stage_links_add(strait_stage_links *links, const strait_run_plan *plan, int stage,
                                  strait_stage_side side, int replica, strait_stage_peer peer);

/* The name of a peer of `stage` for people: "stage 2, replica 1". */
void strait_stage_links_name(const strait_stage_links *links, const strait_run_plan *plan,
                             int stage, int peer, char out[STRAIT_NAME_MAX]);

/* Notes the peer of a replica; -1 is ignored. */
void strait_stage_links_set(strait_stage_links *links, strait_stage_side side, int replica,
                            int peer);

/* The side and the replica of a peer. Returns 0 for a peer that is not here. */
int strait_stage_links_find(const strait_stage_links *links, int peer, strait_stage_side *side,
                            int *replica);

/* The stage of a peer of `stage`; -1: it is not here. */
int strait_stage_links_stage(const strait_stage_links *links, int stage, int peer);

/* How many peers of a side there are. */
int strait_stage_links_count(const strait_stage_links *links, strait_stage_side side);

/* Waits until every peer is connected. */
strait_err strait_stage_links_wait(const strait_stage_links *links, int timeout_ms);

/* Bytes that arrived from a side since the last call, as the socket counts them. */
uint64_t strait_stage_links_received(strait_stage_links *links, strait_stage_side side);
