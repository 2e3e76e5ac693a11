/* status.h - the status of a swarm in a file that other programs can read: FOLDER/swarm.json.
 *
 * The host replaces it about once a second; `strait watch` shows it. */
#pragma once

#include "base/json.h"
#include "swarm/host/host.h"

typedef struct strait_status_worker {
    char name[STRAIT_NAME_MAX], device[64], key[9];
    int stage;        // -1: a spare
    int replica;      // of the stage; 0: its owner
    int n_replicas;   // that the stage has; 0 for a spare
    int is_connected; // its link is up
    double flops, memory_bytes;
    double silence_s;     // since its last heartbeat
    double rtt_s, up_bps; // of its link to the coordinator
    double sent_bytes, received_bytes;
    double tokens; // that it has computed a stage for, since it joined
} strait_status_worker;

typedef struct strait_status {
    char phase[16];
    int64_t generation, step, committed;
    int n_stages;
    int64_t refused;
    int has_audits;                         // spares audit a share of the work
    int64_t approved, convicted, unsettled; // intervals whose result was right, wrong, unknown
    double ids_bytes;
    int more_stage;   // that one more worker would help most, as a replica; -1: none
    double more_gain; // by which the speed would be multiplied; 0: not known yet
    strait_status_worker workers[STRAIT_SWARM_WORKERS];
    int n_workers;
} strait_status;

/* Copies the status of a running host. */
void strait_status_collect(const strait_host_status *from, strait_status *out);
/* The status as JSON, which the caller releases; NULL: no memory. */
json_t *strait_status_pack(const strait_status *status);
/* Reads such JSON; what it lacks is zero. */
void strait_status_unpack(const json_t *document, strait_status *out);
/* Replaces the file. STRAIT_EIO, STRAIT_ENOMEM. */
strait_err strait_status_save(const strait_status *status, const char *folder);
/* Reads the file. STRAIT_EIO when there is none yet, STRAIT_EDATA when it is not JSON. */
strait_err strait_status_load(const char *folder, strait_status *out);
