/* view.h - what a swarm looks like at a moment, as a file that others can read: FOLDER/swarm.json.
 *
 * The host replaces it about once a second; `strait watch` shows it. */
#pragma once

#include "swarm/host.h"

enum {
    STRAIT_VIEW_MEMBERS = STRAIT_SWARM_NODES
};

typedef struct strait_view_member {
    char name[STRAIT_NAME_MAX], device[64], key[9];
    int stage;   // -1: a spare
    int is_here; // its link is up
    double flops, memory_bytes;
    double silence_s;     // since its last pulse
    double rtt_s, up_bps; // of its link to the coordinator
    double sent_bytes, received_bytes;
} strait_view_member;

typedef struct strait_view {
    char phase[16];
    int64_t epoch, step, committed;
    int n_stages;
    int64_t refused;
    double ids_bytes;
    strait_view_member members[STRAIT_VIEW_MEMBERS];
    int n_members;
} strait_view;

void strait_view_take(const strait_host_view *from, strait_view *out);
strait_err strait_view_save(const strait_view *view, const char *folder);
/* STRAIT_EIO when there is none yet. */
strait_err strait_view_load(const char *folder, strait_view *out);
