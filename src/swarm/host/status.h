/* status.h - the state of a swarm as a file that others can read: FOLDER/swarm.json.
 *
 * The host replaces it about once a second; `strait watch` shows it. */
#pragma once

#include "swarm/host/host.h"

enum {
    STRAIT_STATUS_MEMBERS = STRAIT_SWARM_WORKERS
};

typedef struct strait_status_member {
    char name[STRAIT_NAME_MAX], device[64], key[9];
    int stage;        // -1: a spare
    int is_connected; // its link is up
    double flops, memory_bytes;
    double silence_s;     // since its last heartbeat
    double rtt_s, up_bps; // of its link to the coordinator
    double sent_bytes, received_bytes;
} strait_status_member;

typedef struct strait_status {
    char phase[16];
    int64_t generation, step, committed;
    int n_stages;
    int64_t refused;
    double ids_bytes;
    strait_status_member members[STRAIT_STATUS_MEMBERS];
    int n_members;
} strait_status;

void strait_status_take(const strait_host_status *from, strait_status *out);
strait_err strait_status_save(const strait_status *view, const char *folder);
/* STRAIT_EIO when there is no file yet. */
strait_err strait_status_load(const char *folder, strait_status *out);
