#include "stage/replicas/link_progress.h"

#include "base/clock.h"

enum {
    LOOK_MS = 200, // between two looks: each asks the net thread
    SHARE = 8      // of the deadline, at least, between two messages to a neighbour
};

static int64_t later(int64_t a, int64_t b) {
    return a > b ? a : b;
}

void strait_link_progress_note(strait_link_progress *progress) {
    progress->own_ns = progress->began_ns = strait_clock_ns();
}

void strait_link_progress_hear(strait_link_progress *progress, int side,
                               const struct strait_msg *msg) {
    int64_t *at = &progress->heard_ns[side > 0];
    *at = later(*at, strait_clock_ns() - (int64_t)msg->step * 1000000);
}

/* Bytes of bodies alone: pings arrive from a peer that does nothing, too. */
static void look(strait_link_progress *progress, struct strait_mesh *mesh,
                 const strait_link_peers *peers, int64_t now) {
    for (int side = 0; side < 2; side++) {
        uint64_t bytes = 0;
        for (int i = 0; i < peers->n[side]; i++) {
            strait_link_stats stats;
            if (strait_mesh_stats(mesh, peers->items[side][i], &stats) == STRAIT_OK)
                bytes += stats.received_payload + stats.received_partial;
        }
        if (bytes != progress->bytes[side]) progress->own_ns = now;
        progress->bytes[side] = bytes;
    }
}

/* A queue that is full needs no such message: what fills it moves. */
static void tell_one(struct strait_mesh *mesh, int peer, int64_t idle_ns) {
    struct strait_msg *msg = NULL;
    if (strait_msg_open(strait_mesh_pool(mesh), STRAIT_MSG_PROGRESS, 0, &msg) != STRAIT_OK) return;
    msg->step = (uint32_t)(idle_ns / 1000000 < UINT32_MAX ? idle_ns / 1000000 : UINT32_MAX);
    (void)strait_mesh_send(mesh, peer, &msg);
    strait_msg_close(&msg);
}

static void tell(const strait_link_progress *progress, struct strait_mesh *mesh,
                 const strait_link_peers *peers, int64_t now) {
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < peers->n[side]; i++)
            tell_one(mesh, peers->items[side][i],
                     now - later(progress->own_ns, progress->heard_ns[!side]));
}

int64_t strait_link_progress_check(strait_link_progress *progress, struct strait_mesh *mesh,
                                   const strait_link_peers *peers, int deadline_ms) {
    const int64_t now = strait_clock_ns();
    const int64_t look_ns = (deadline_ms / SHARE < LOOK_MS ? deadline_ms / SHARE : LOOK_MS) *
                            INT64_C(1000000);
    if (now - progress->looked_ns >= look_ns) {
        progress->looked_ns = now;
        look(progress, mesh, peers, now);
    }
    if (now - later(progress->told_ns, progress->began_ns) >=
        (int64_t)deadline_ms * 1000000 / SHARE) {
        progress->told_ns = now;
        tell(progress, mesh, peers, now);
    }
    const int64_t moved = later(progress->own_ns,
                                later(progress->heard_ns[0], progress->heard_ns[1]));
    return (now - moved) / 1000000;
}
