/* replica_messages.c - the peers of a worker besides the first replicas of its neighbours, by
 * a table of their own. */
#include "swarm/protocol.h"

#include <string.h>

#define REPLICA(type, member) STRAIT_FIELD(type, strait_task_replica, member)

static const strait_field fields[] = {
    REPLICA(INT, side),         REPLICA(INT, replica),       REPLICA(FLAG, peer.is_present),
    REPLICA(BYTES, peer.key),   REPLICA(FLAG, peer.is_near), REPLICA(FLAG, peer.must_listen),
    REPLICA(NAME, peer.address)};
const strait_layout strait_task_replica_layout = STRAIT_LAYOUT("replica", fields);

strait_err strait_task_replicas_pack(const strait_task_replica *replicas, int n,
                                     unsigned char *memory, size_t capacity, strait_view *out) {
    const strait_layout *layout = &strait_task_replica_layout;
    strait_writer w = {.left = capacity};
    w.at = memory;
    for (int i = 0; i < n; i++)
        strait_layout_write(layout, &replicas[i], &w);
    *out = (strait_view){memory, capacity - w.left};
    return w.is_short ? STRAIT_FAIL(STRAIT_EINVAL, "no memory for %d replicas", n) : STRAIT_OK;
}

strait_err strait_task_replicas_unpack(const strait_view *others, strait_task_replica *out,
                                       int *n) {
    strait_reader r = {others->data, others->bytes, 0};
    for (*n = 0; *n < STRAIT_TASK_REPLICAS && r.left > 0 && !r.is_short; (*n)++) {
        strait_task_replica *replica = &out[*n];
        memset(replica, 0, sizeof *replica);
        strait_layout_read(&strait_task_replica_layout, &r, (strait_float_memory){NULL, 0},
                           replica);
        if (replica->side < 0 || replica->side >= STRAIT_SIDES || replica->replica < 0 ||
            replica->replica >= STRAIT_SWARM_REPLICAS)
            r.is_short = 1;
    }
    return r.is_short || r.left != 0
               ? STRAIT_FAIL(STRAIT_EPROTO, "a peer sent a malformed list of replicas")
               : STRAIT_OK;
}
