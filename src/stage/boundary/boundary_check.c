#include "stage/boundary/boundary_check.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>

enum {
    SHOWN = 32, // characters of a value in a message
    SEND_MS = 30000,
    WAIT_MS = 30000
};

#define CHECK_FIELD(type, member) STRAIT_FIELD(type, strait_boundary_check, member)

/* The fingerprint comes last: it differs with every other field and explains nothing. */
static const strait_field fields[] = {
    CHECK_FIELD(INT, boundary),  CHECK_FIELD(NAME, codec), CHECK_FIELD(NAME, variant),
    CHECK_FIELD(I64, rows),      CHECK_FIELD(I64, cols),   CHECK_FIELD(I64, keep),
    CHECK_FIELD(I64, rank),      CHECK_FIELD(I64, hidden), CHECK_FIELD(INT, bits),
    CHECK_FIELD(INT, grad_bits), CHECK_FIELD(U64, seed),   CHECK_FIELD(U64, fingerprint),
};

const strait_layout strait_boundary_check_layout = STRAIT_LAYOUT("boundary_check", fields);

/* Fills in the defaults first, so that a default on one side equals the same value given on the
 * other. */
strait_err strait_boundary_check_init(const strait_run_plan *plan, int boundary,
                                      strait_boundary_check *out) {
    strait_codec_spec spec = strait_run_plan_codec(plan, boundary, 1);
    STRAIT_TRY(strait_codec_check(&spec));
    *out = (strait_boundary_check){.boundary = boundary,
                                   .rows = spec.rows,
                                   .cols = spec.cols,
                                   .keep = spec.keep,
                                   .rank = spec.rank,
                                   .hidden = spec.hidden,
                                   .bits = spec.bits,
                                   .grad_bits = spec.grad_bits,
                                   .seed = spec.seed};
    (void)snprintf(out->codec, sizeof out->codec, "%s", spec.name);
    (void)snprintf(out->variant, sizeof out->variant, "%s", spec.variant);
    return strait_codec_fingerprint(&spec, &out->fingerprint);
}

strait_err strait_boundary_check_pack(struct strait_msg_pool *pool,
                                      const strait_boundary_check *check, struct strait_msg **out) {
    STRAIT_TRY(strait_msg_open(pool, STRAIT_MSG_BOUNDARY_CHECK,
                               strait_layout_bytes(&strait_boundary_check_layout, check), out));
    strait_writer w = {(*out)->body, (*out)->size, 0};
    (*out)->priority = STRAIT_PRIORITY_CONTROL; // it overtakes every crossing
    strait_layout_write(&strait_boundary_check_layout, check, &w);
    return STRAIT_OK;
}

/* A peer may send anything: too short or too long are both errors, as for every message. */
strait_err strait_boundary_check_unpack(const struct strait_msg *msg, strait_boundary_check *out) {
    strait_reader r = {msg->body, msg->size, 0};
    strait_layout_read(&strait_boundary_check_layout, &r, (strait_float_memory){0}, out);
    return r.is_short || r.left != 0
               ? STRAIT_FAIL(STRAIT_EPROTO, "a neighbour sent a malformed description of its codec")
               : STRAIT_OK;
}

/* Values are compared as text, so that the message shows exactly what differed. */
static void show(const strait_field *field, const strait_boundary_check *check, char out[SHOWN]) {
    const void *at = (const unsigned char *)check + field->offset;
    int small;
    int64_t large;
    switch (field->type) {
    case STRAIT_FIELD_NAME: (void)snprintf(out, SHOWN, "%s", (const char *)at); break;
    case STRAIT_FIELD_INT:
        memcpy(&small, at, sizeof small);
        (void)snprintf(out, SHOWN, "%d", small);
        break;
    default:
        memcpy(&large, at, sizeof large);
        (void)snprintf(out, SHOWN, "%lld", (long long)large);
        break;
    }
}

strait_err strait_boundary_check_compare(const strait_boundary_check *ours, int our_stage,
                                         const strait_boundary_check *theirs, int their_stage) {
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        char mine[SHOWN];
        char other[SHOWN];
        show(&fields[i], ours, mine);
        show(&fields[i], theirs, other);
        if (strcmp(mine, other) != 0)
            return STRAIT_FAIL(STRAIT_EPROTO,
                               "boundary %d: stage %d and stage %d have different codecs: %s is %s "
                               "at stage %d and %s at stage %d; start both from the same run file",
                               ours->boundary, our_stage, their_stage, fields[i].name, mine,
                               our_stage, other, their_stage);
    }
    return STRAIT_OK;
}

/* Both neighbours are unknown again. */
void strait_boundary_checks_init(struct strait_boundary_checks *c, const strait_run_plan *plan,
                                 int stage) {
    *c = (struct strait_boundary_checks){.plan = plan, .stage = stage};
}

/* The first and last stage have one neighbour only. */
static strait_err send_one(const struct strait_boundary_checks *c, struct strait_mesh *mesh,
                           int peer, int boundary) {
    strait_boundary_check check;
    struct strait_msg *msg = NULL;
    if (peer < 0) return STRAIT_OK;
    STRAIT_TRY(strait_boundary_check_init(c->plan, boundary, &check));
    STRAIT_TRY(strait_boundary_check_pack(strait_mesh_pool(mesh), &check, &msg));
    const strait_err err = strait_mesh_send_wait(mesh, peer, SEND_MS, &msg);
    strait_msg_close(&msg);
    return err;
}

/* Neighbours that reconnect in the same mesh have compared their codecs already. */
strait_err strait_boundary_checks_send(struct strait_boundary_checks *c,
                                       const strait_stage_links *links) {
    if (c->was_sent) return STRAIT_OK;
    c->was_sent = 1;
    for (int i = 0; i < links->n[STRAIT_SIDE_PREV]; i++)
        STRAIT_TRY(send_one(c, links->mesh, links->peers[STRAIT_SIDE_PREV][i], c->stage - 1));
    for (int i = 0; i < links->n[STRAIT_SIDE_NEXT]; i++)
        STRAIT_TRY(send_one(c, links->mesh, links->peers[STRAIT_SIDE_NEXT][i], c->stage));
    return STRAIT_OK;
}

static strait_err compare_with_ours(struct strait_boundary_checks *c, int from, int boundary,
                                    const struct strait_msg *msg) {
    strait_boundary_check theirs;
    strait_boundary_check ours;
    STRAIT_TRY(strait_boundary_check_unpack(msg, &theirs));
    if (theirs.boundary != boundary)
        return STRAIT_FAIL(STRAIT_EPROTO,
                           "stage %d: stage %d described boundary %d, but joins this stage at "
                           "boundary %d",
                           c->stage, from, theirs.boundary, boundary);
    STRAIT_TRY(strait_boundary_check_init(c->plan, boundary, &ours));
    const strait_err err = strait_boundary_check_compare(&ours, c->stage, &theirs, from);
    if (err == STRAIT_OK) return STRAIT_OK;
    (void)snprintf(c->mismatch, sizeof c->mismatch, "%.255s", strait_err_detail());
    c->mismatch_side = from < c->stage ? -1 : 1;
    return err;
}

/* A boundary has two ends, of which one is this stage: who may describe it follows from who sends,
 * so the message's own number is only compared with it. A difference is remembered: the message may
 * arrive when no command is being executed. Replicas are counted once: one that describes its codec
 * twice must not stand for another. */
strait_err strait_boundary_checks_receive(struct strait_boundary_checks *c,
                                          const strait_stage_links *links,
                                          const struct strait_msg *msg) {
    strait_stage_side side = STRAIT_SIDE_SAME;
    int replica = 0;
    const int is_known = strait_stage_links_find(links, msg->peer, &side, &replica);
    if (!is_known || side == STRAIT_SIDE_SAME)
        return STRAIT_FAIL(STRAIT_EPROTO,
                           "stage %d: a peer that is not a neighbour described a codec", c->stage);
    const int from = c->stage + (int)side - STRAIT_SIDE_SAME;
    const strait_err err = compare_with_ours(c, from, from < c->stage ? from : c->stage, msg);
    if (err == STRAIT_OK || c->mismatch[0] != '\0') c->heard[side] |= UINT64_C(1) << replica;
    return err;
}

/* Asked before each step and validation: activations of another codec must not reach the model. */
strait_err strait_boundary_checks_result(const struct strait_boundary_checks *c) {
    return c->mismatch[0] == '\0' ? STRAIT_OK : STRAIT_FAIL(STRAIT_EPROTO, "%s", c->mismatch);
}

/* The side whose replicas have not all described their codec; STRAIT_SIDE_SAME: there is none. */
static strait_stage_side awaited(const struct strait_boundary_checks *c,
                                 const strait_stage_links *links) {
    static const strait_stage_side sides[] = {STRAIT_SIDE_PREV, STRAIT_SIDE_NEXT};
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < links->n[sides[k]]; i++)
            if (links->peers[sides[k]][i] >= 0 && (c->heard[sides[k]] >> i & 1) == 0)
                return sides[k];
    return STRAIT_SIDE_SAME;
}

strait_err strait_boundary_checks_require(const struct strait_boundary_checks *c,
                                          const strait_stage_links *links, int *side) {
    const int apart = (int)awaited(c, links) - STRAIT_SIDE_SAME;
    if (apart == 0) return STRAIT_OK;
    *side = apart;
    return STRAIT_FAIL(STRAIT_EPROTO, "stage %d: stage %d did not describe its codec", c->stage,
                       c->stage + apart);
}

strait_err strait_boundary_checks_wait(struct strait_boundary_checks *c,
                                       const strait_stage_links *links,
                                       strait_err (*route)(void *user, struct strait_msg **msg),
                                       void *user) {
    const int64_t until = strait_clock_ns() + WAIT_MS * INT64_C(1000000);
    while (awaited(c, links) != STRAIT_SIDE_SAME) {
        struct strait_msg *msg = NULL;
        strait_err err = strait_mesh_receive(links->mesh, WAIT_MS, &msg);
        if (err == STRAIT_OK) err = route(user, &msg);
        strait_msg_close(&msg);
        STRAIT_TRY(err);
        if (strait_clock_ns() > until)
            return STRAIT_FAIL(STRAIT_ETIMEDOUT,
                               "stage %d: a neighbour did not describe its codec for %d s",
                               c->stage, WAIT_MS / 1000);
    }
    return STRAIT_OK;
}
