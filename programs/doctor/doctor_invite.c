/* doctor_invite.c - whether this machine can reach the coordinator of an invite, and whether
 * neighbours can reach this machine. It does not join the run. */
#include "base/clock.h"
#include "doctor.h"
#include "net/core/address_class.h"
#include "net/core/reachability.h"
#include "swarm/protocol.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    WAIT_MS = 10000,
    REFUSED_MS = 1500,
    LOOK_MS = 250,
    BEAT_MS = 100,
    RTT_LOOKS = 20,
    PROBE_MS = 5000,
    PROBE_SPAN = 8,    // messages timed together; earlier ones let congestion control find the rate
    SLOW_BPS = 1000000 // a slower link slows every run down
};

/* Sends a few megabytes that the coordinator discards and asks the kernel how fast they were
 * delivered, in bits per second. 0: unknown. */
static double measure_up(struct strait_mesh *mesh) {
    const int64_t until = strait_clock_ns() + PROBE_MS * INT64_C(1000000);
    double best = 0.0;
    for (int i = 0; i < STRAIT_PROBES; i++) {
        struct strait_msg *msg = NULL;
        if (strait_msg_open(strait_mesh_pool(mesh), STRAIT_MSG_PROBE, STRAIT_PROBE_BYTES, &msg) ==
            STRAIT_OK) {
            memset(msg->body, 0, STRAIT_PROBE_BYTES);
            (void)strait_mesh_send(mesh, 0, &msg);
        }
        strait_msg_close(&msg);
    }
    strait_link_stats stats = {.queued_bytes = 1};
    while (stats.queued_bytes > 0 && strait_clock_ns() < until) {
        const struct timespec nap = {.tv_nsec = BEAT_MS * 100000L};
        (void)nanosleep(&nap, NULL);
        if (strait_mesh_stats(mesh, 0, &stats) != STRAIT_OK) break;
        if (stats.delivery_bps > best) best = stats.delivery_bps;
    }
    return best;
}

/* The token of the invite is the proof that this machine may ask: nobody else gets megabytes sent.
 */
static strait_err ask_for_probes(struct strait_mesh *mesh, const strait_invite *invite) {
    struct strait_msg *msg = NULL;
    STRAIT_TRY(strait_msg_open(strait_mesh_pool(mesh), STRAIT_MSG_PROBE, STRAIT_TOKEN_BYTES, &msg));
    memcpy(msg->body, invite->token, STRAIT_TOKEN_BYTES);
    const strait_err err = strait_mesh_send(mesh, 0, &msg);
    strait_msg_close(&msg);
    return err;
}

/* Asks the coordinator to send the same and times the fastest stretch, in bits per second. 0:
 * unknown, for example because the coordinator sent nothing. */
static double measure_down(struct strait_mesh *mesh, const strait_invite *invite) {
    const int64_t until = strait_clock_ns() + PROBE_MS * INT64_C(1000000);
    int64_t received_ns[STRAIT_PROBES] = {0};
    double best = 0.0;
    if (ask_for_probes(mesh, invite) != STRAIT_OK) return 0.0;
    for (int n = 0; n < STRAIT_PROBES && strait_clock_ns() < until;) {
        struct strait_msg *msg = NULL;
        if (strait_mesh_receive(mesh, LOOK_MS, &msg) != STRAIT_OK) continue;
        const int is_probe = msg->type == STRAIT_MSG_PROBE;
        const int64_t now = msg->queued_ns;
        strait_msg_close(&msg);
        if (!is_probe) continue;
        received_ns[n] = now;
        if (n >= PROBE_SPAN && now > received_ns[n - PROBE_SPAN]) {
            const double span_s = (double)(now - received_ns[n - PROBE_SPAN]) * 1e-9;
            const double rate_bps = 8.0 * PROBE_SPAN * STRAIT_PROBE_BYTES / span_s;
            if (rate_bps > best) best = rate_bps;
        }
        n++;
    }
    return best;
}

/* Waits for the handshake. An address that refuses does so again at once, so only silence is worth
 * the full wait. */
static strait_err wait_up(struct strait_mesh *mesh) {
    strait_err err = STRAIT_ETIMEDOUT;
    for (int waited_ms = 0; err == STRAIT_ETIMEDOUT && waited_ms < WAIT_MS; waited_ms += LOOK_MS) {
        err = strait_mesh_wait_up(mesh, 0, LOOK_MS);
        const int is_silent = strstr(strait_err_detail(), "has not answered yet") != NULL;
        if (waited_ms > REFUSED_MS && !is_silent) break;
    }
    return err;
}

/* Each failure has its own remedy, so they are told apart. */
static void look_at_link(struct strait_doctor *doctor, struct strait_mesh *mesh,
                         const strait_invite *invite, const char *address) {
    strait_link_stats stats = {0};
    const strait_err err = wait_up(mesh);
    if (err == STRAIT_EAUTH || err == STRAIT_EPROTO) {
        strait_doctor_note(
            doctor, "coordinator",
            "another coordinator answers there, or the invite is of an earlier run: ask "
            "for a new invite",
            "%s: %.200s", address, strait_err_detail());
        return;
    }
    if (err != STRAIT_OK) {
        strait_doctor_note(doctor, "coordinator",
                           "is \"strait host\" running? does its router forward the port, does its "
                           "firewall allow it? (host --listen, --announce)",
                           "%s: %.200s", address, strait_err_detail());
        return;
    }
    for (int i = 0; i < RTT_LOOKS && stats.rtt_s <= 0.0; i++) {
        const struct timespec nap = {.tv_nsec = BEAT_MS * 1000000L};
        (void)nanosleep(&nap, NULL);
        (void)strait_mesh_stats(mesh, 0, &stats);
    }
    const double rtt_s = stats.rtt_min_s;
    const double up_bps = measure_up(mesh);
    const double down_bps = measure_down(mesh, invite);
    char rates[64];
    const int used = snprintf(rates, sizeof rates, "takes %.*f Mb/s", up_bps < SLOW_BPS ? 2 : 0,
                              up_bps / 1e6);
    if (down_bps > 0.0) // an older coordinator sends no probes
        (void)snprintf(rates + used, sizeof rates - (size_t)used, ", sends %.*f Mb/s",
                       down_bps < SLOW_BPS ? 2 : 0, down_bps / 1e6);
    if ((up_bps > 0.0 && up_bps < SLOW_BPS) || (down_bps > 0.0 && down_bps < SLOW_BPS))
        strait_doctor_note(
            doctor, "coordinator",
            "use a cable, or stop other programs that use the link; a run with a codec "
            "(link.codec.name) needs less bandwidth",
            "%s answers with the key of the invite, round trip %.1f ms, but only %s", address,
            1e3 * rtt_s, rates);
    else
        strait_doctor_fact(doctor, "coordinator",
                           "%s answers with the key of the invite, round trip %.1f ms, %s", address,
                           1e3 * rtt_s, rates);
}

/* Dials one address. */
static void dial(struct strait_doctor *doctor, const strait_invite *invite, const char *address) {
    struct strait_identity *identity = NULL;
    struct strait_mesh *mesh = NULL;
    int peer = 0;
    strait_err err = strait_identity_generate(&identity);
    strait_mesh_config config = {
        .scheme = "tls",
        .transport = {.identity = identity, .name = "doctor", .n_streams = 1, .ping_ms = BEAT_MS}};
    memcpy(config.transport.run, invite->run, STRAIT_RUN_BYTES);
    const strait_mesh_peer host = {.name = "coordinator", .key = invite->key, .address = address};
    if (err == STRAIT_OK) err = strait_mesh_open(&config, &mesh);
    if (err == STRAIT_OK) err = strait_mesh_add(mesh, &host, &peer);
    if (err == STRAIT_OK)
        look_at_link(doctor, mesh, invite, address);
    else
        strait_doctor_fault(doctor, err, "coordinator", "", "%s", strait_err_detail());
    strait_mesh_close(&mesh);
    strait_identity_close(&identity);
}

/* Dials every address of the invite. One that answers is enough; if none does, the first finding
 * becomes the fault. */
static void dial_all(struct strait_doctor *doctor, const strait_invite *invite,
                     char reached[STRAIT_ADDRESS_MAX]) {
    const int first = doctor->n;
    reached[0] = '\0';
    for (const char *next = invite->address; *next != '\0';) {
        char address[STRAIT_ADDRESS_MAX];
        const size_t n = strcspn(next, ",");
        (void)snprintf(address, sizeof address, "%.*s", (int)n, next);
        const int prev = doctor->n;
        dial(doctor, invite, address);
        const int answers = doctor->n > prev &&
                            strstr(doctor->findings[prev].text, "answers with") != NULL;
        if (answers && reached[0] == '\0') memcpy(reached, address, sizeof address);
        next += n + (next[n] == ',');
    }
    if (reached[0] != '\0' || first >= doctor->n) return;
    strait_finding *f = &doctor->findings[first];
    f->state = STRAIT_FINDING_FAULT;
    f->err = strstr(f->fix, "another coordinator") != NULL ? STRAIT_EAUTH : STRAIT_ETIMEDOUT;
}

static void host_part(const char *address, char out[STRAIT_ADDRESS_MAX]) {
    const char *colon = strrchr(address, ':');
    (void)snprintf(out, STRAIT_ADDRESS_MAX, "%.*s",
                   colon != NULL ? (int)(colon - address) : (int)strlen(address), address);
}

/* Neighbours dial the address from which this machine reaches the coordinator, so a private one
 * works only if the coordinator is in the same network. */
static void look_at_address(struct strait_doctor *doctor, const char *towards) {
    char own[STRAIT_ADDRESS_MAX];
    char ours[STRAIT_ADDRESS_MAX];
    const strait_address_class theirs = strait_address_class_of(towards); // NONE: a name
    strait_reachability_address("0.0.0.0:1", "", towards, own);
    host_part(own, ours);
    if (strait_address_class_of(own) == STRAIT_ADDRESS_PRIVATE &&
        (theirs == STRAIT_ADDRESS_PUBLIC || theirs == STRAIT_ADDRESS_NONE))
        strait_doctor_note(
            doctor, "address",
            "forward a port to this machine and use join --listen 0.0.0.0:PORT "
            "--announce OUTSIDE:PORT, or use --no-listen",
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
        strait_doctor_fault(doctor, STRAIT_EAUTH, "invite",
                            "ask for a new one; the coordinator uses its own clock, so check that "
                            "this machine's is right",
                            "has expired by this machine's clock");
    else
        strait_doctor_fact(doctor, "invite", "valid, for the coordinator at %s", invite.address);
    char reached[STRAIT_ADDRESS_MAX];
    dial_all(doctor, &invite, reached);
    if (reached[0] != '\0') look_at_address(doctor, reached);
}
