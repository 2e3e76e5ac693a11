/* boundary_check.h - the two stages of a boundary compare their codecs when they connect.
 *
 * Each sends the fingerprint of its codec with the settings that people choose. Two codecs that
 * would misread each other's bytes are found before the first crossing, and the error names both
 * stages and the setting that differs. */
#pragma once

#include "base/layout.h"
#include "config/run_plan.h"
#include "stage/replicas/links.h"

enum {
    STRAIT_MSG_BOUNDARY_CHECK = STRAIT_MSG_FIRST + 12 // between neighbours
};

typedef struct strait_boundary_check {
    int boundary;
    uint64_t fingerprint; // of every setting that changes values or bytes; codec.h
    char codec[STRAIT_CODEC_NAME], variant[STRAIT_CODEC_NAME];
    int64_t rows, cols, keep, rank, hidden;
    int bits, grad_bits;
    uint64_t seed;
} strait_boundary_check;

extern const strait_layout strait_boundary_check_layout;

/* What a stage of this plan sends about a boundary. STRAIT_ENOMEM, or the codec's own errors. */
strait_err strait_boundary_check_init(const strait_run_plan *plan, int boundary,
                                      strait_boundary_check *out);

strait_err strait_boundary_check_pack(struct strait_msg_pool *pool,
                                      const strait_boundary_check *check, struct strait_msg **out);
strait_err strait_boundary_check_unpack(const struct strait_msg *msg, strait_boundary_check *out);

/* STRAIT_EPROTO, naming both stages and the first setting that differs, unless the two are equal.
 */
strait_err strait_boundary_check_compare(const strait_boundary_check *ours, int our_stage,
                                         const strait_boundary_check *theirs, int their_stage);

/* The checks of one stage with the neighbours of one mesh. */
struct strait_boundary_checks {
    const strait_run_plan *plan; // borrowed
    int stage;
    int was_sent;
    uint64_t heard[STRAIT_SIDES]; // replicas of a neighbour that described theirs, as bits
    char mismatch[256];           // why it differs from ours; empty: it does not
    int mismatch_side;            // whose description differs: -1 previous, 1 next
};

void strait_boundary_checks_init(struct strait_boundary_checks *checks, const strait_run_plan *plan,
                                 int stage);

/* Sends the neighbours ours, the first time it is called. */
strait_err strait_boundary_checks_send(struct strait_boundary_checks *checks,
                                       const strait_stage_links *links);

/* Compares what a peer of these links sent. STRAIT_EPROTO: it is no neighbour, its codec differs,
 * or it describes another boundary than the one between the two stages. */
strait_err strait_boundary_checks_receive(struct strait_boundary_checks *checks,
                                          const strait_stage_links *links,
                                          const struct strait_msg *msg);

/* Waits until every neighbour that is connected has described its codec. `route` handles what
 * arrives meanwhile and takes ownership as strait_boundary_deliver does. STRAIT_ETIMEDOUT. */
strait_err strait_boundary_checks_wait(struct strait_boundary_checks *checks,
                                       const strait_stage_links *links,
                                       strait_err (*route)(void *user, struct strait_msg **msg),
                                       void *user);

/* The error of receive again, for a command that begins after it. */
strait_err strait_boundary_checks_result(const struct strait_boundary_checks *checks);

/* STRAIT_EPROTO unless every replica of the neighbours has described its codec. *side: which
 * neighbour has not, -1 previous or 1 next; otherwise untouched. */
strait_err strait_boundary_checks_require(const struct strait_boundary_checks *checks,
                                          const strait_stage_links *links, int *side);
