/* doctor_invite.c - whether the coordinator of an invite can be reached from here, and neighbours
 * can reach this machine. Joins nothing. */
#include "doctor.h"
#include "net/mesh.h"
#include "net/reach.h"
#include "swarm/invite.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    WAIT_MS = 10000,
    BEAT_MS = 100,
    RTT_LOOKS = 20
};

static void look_at_link(struct strait_doctor *doctor, struct strait_mesh *mesh,
                         const strait_invite *invite) {
    strait_link_stats stats = {0};
    const strait_err err = strait_mesh_wait_up(mesh, 0, WAIT_MS);
    if (err == STRAIT_EAUTH || err == STRAIT_EPROTO) {
        strait_doctor_fault(doctor, STRAIT_EAUTH, "coordinator",
                            "someone else answers there, or the run is another one by now: ask for "
                            "a new invite",
                            "%s: %.200s", invite->address, strait_err_detail());
        return;
    }
    if (err != STRAIT_OK) {
        strait_doctor_fault(
            doctor, STRAIT_ETIMEDOUT, "coordinator",
            "is \"strait host\" running? does its router forward the port, does its "
            "firewall allow it? (host --listen, --announce)",
            "%s: %.200s", invite->address, strait_err_detail());
        return;
    }
    for (int i = 0; i < RTT_LOOKS && stats.rtt_s <= 0.0; i++) {
        const struct timespec nap = {.tv_nsec = BEAT_MS * 1000000L};
        (void)nanosleep(&nap, NULL);
        (void)strait_mesh_stats(mesh, 0, &stats);
    }
    strait_doctor_fact(doctor, "coordinator",
                       "%s answers with the key of the invite, round trip %.1f ms", invite->address,
                       1e3 * stats.rtt_min_s);
}

static void dial(struct strait_doctor *doctor, const strait_invite *invite) {
    struct strait_identity *identity = NULL;
    struct strait_mesh *mesh = NULL;
    int peer = 0;
    strait_err err = strait_identity_make(&identity);
    strait_mesh_config config = {
        .scheme = "tls",
        .transport = {.identity = identity, .name = "doctor", .n_streams = 1, .beat_ms = BEAT_MS}};
    memcpy(config.transport.run, invite->run, STRAIT_RUN_BYTES);
    const strait_mesh_peer host = {
        .name = "coordinator", .key = invite->key, .address = invite->address};
    if (err == STRAIT_OK) err = strait_mesh_open(&config, &mesh);
    if (err == STRAIT_OK) err = strait_mesh_add(mesh, &host, &peer);
    if (err == STRAIT_OK)
        look_at_link(doctor, mesh, invite);
    else
        strait_doctor_fault(doctor, err, "coordinator", "", "%s", strait_err_detail());
    strait_mesh_close(&mesh);
    strait_identity_close(&identity);
}

static int is_private(const char *host) {
    struct in_addr in;
    if (inet_pton(AF_INET, host, &in) != 1) return 0;
    const uint32_t a = ntohl(in.s_addr);
    return a >> 24 == 10 || a >> 20 == 0xac1 || a >> 16 == 0xc0a8 || a >> 22 == (0x64400000u >> 22);
}

static void host_part(const char *address, char out[STRAIT_ADDRESS_MAX]) {
    const char *colon = strrchr(address, ':');
    (void)snprintf(out, STRAIT_ADDRESS_MAX, "%.*s",
                   colon != NULL ? (int)(colon - address) : (int)strlen(address), address);
}

/* Neighbours dial the address by which we reach the coordinator. */
static void look_at_address(struct strait_doctor *doctor, const strait_invite *invite) {
    char own[STRAIT_ADDRESS_MAX];
    char ours[STRAIT_ADDRESS_MAX];
    char theirs[STRAIT_ADDRESS_MAX];
    strait_reach_address("0.0.0.0:1", "", invite->address, own);
    host_part(own, ours);
    host_part(invite->address, theirs);
    if (is_private(ours) && !is_private(theirs) && strncmp(theirs, "127.", 4) != 0)
        strait_doctor_note(
            doctor, "address",
            "forward a port to this machine and say join --listen 0.0.0.0:PORT "
            "--announce OUTSIDE:PORT, or say --no-listen",
            "%s is private and the coordinator's is not: neighbours elsewhere cannot "
            "dial this machine",
            ours);
    else
        strait_doctor_fact(doctor, "address", "neighbours will dial %s", ours);
}

void strait_doctor_invite(struct strait_doctor *doctor) {
    strait_invite invite;
    if (doctor->invite == NULL) return;
    if (strait_invite_parse(doctor->invite, &invite) != STRAIT_OK) {
        strait_doctor_fault(doctor, STRAIT_ECONFIG, "invite", "paste the whole line", "%s",
                            strait_err_detail());
        return;
    }
    if (invite.expires != 0 && (uint64_t)time(NULL) > invite.expires)
        strait_doctor_fault(doctor, STRAIT_EAUTH, "invite", "ask for a new one", "has expired");
    else
        strait_doctor_fact(doctor, "invite", "whole, for the coordinator at %s", invite.address);
    dial(doctor, &invite);
    look_at_address(doctor, &invite);
}
