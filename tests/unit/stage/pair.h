/* pair.h - two meshes in this process that know each other, for what crosses between stages. */
#pragma once

#include "check.h"
#include "net/inproc/endpoint.h"
#include "net/mesh/mesh.h"

#include <stdio.h>

struct pair {
    struct strait_inproc_network *network;
    struct strait_identity *identities[2];
    struct strait_mesh *meshes[2];
    int peers[2]; // each one's number for the other
};

/* With queue_bytes > 0 neither side holds more than about so much for the other. */
static inline void pair_open_with(struct pair *pair, size_t queue_bytes) {
    char address[STRAIT_ADDRESS_MAX];
    *pair = (struct pair){0};
    CHECK_OK(strait_inproc_network_open(&pair->network));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(strait_identity_generate(&pair->identities[i]));
        strait_mesh_config config = {
            .scheme = "inproc",
            .queue_bytes = queue_bytes,
            .inbox_bytes = queue_bytes,
            .transport = {.network = pair->network, .identity = pair->identities[i], .run = {7}}};
        (void)snprintf(config.transport.name, sizeof config.transport.name, "stage %d", i);
        CHECK_OK(strait_mesh_open(&config, &pair->meshes[i]));
    }
    CHECK_OK(strait_mesh_listen(pair->meshes[1], "stage-1", address));
    for (int i = 1; i >= 0; i--) {
        strait_mesh_peer peer = {.key = *strait_identity_fingerprint(pair->identities[1 - i]),
                                 .address = i == 0 ? address : NULL};
        (void)snprintf(peer.name, sizeof peer.name, "stage %d", 1 - i);
        CHECK_OK(strait_mesh_add(pair->meshes[i], &peer, &pair->peers[i]));
    }
    for (int i = 0; i < 2; i++)
        CHECK_OK(strait_mesh_wait_up(pair->meshes[i], pair->peers[i], 10000));
}

static inline void pair_open(struct pair *pair) {
    pair_open_with(pair, 0);
}

static inline void pair_close(struct pair *pair) {
    for (int i = 0; i < 2; i++)
        strait_mesh_close(&pair->meshes[i]);
    for (int i = 0; i < 2; i++)
        strait_identity_close(&pair->identities[i]);
    strait_inproc_network_close(&pair->network);
}

/* The next message that is not about links. */
static inline struct strait_msg *pair_take(struct pair *pair, int side) {
    for (;;) {
        struct strait_msg *msg = NULL;
        CHECK_OK(strait_mesh_receive(pair->meshes[side], 10000, &msg));
        if (msg->type >= STRAIT_MSG_FIRST) return msg;
        strait_msg_close(&msg);
    }
}
