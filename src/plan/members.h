/* members.h - discrete-event simulation of one step of a pipeline whose stages have replicas, each
 * of which may be at home: all that it sends passes one wire, all that it receives another.
 *
 * A member is one replica of a stage; members are numbered stage by stage. Each follows
 * strait_schedule_next over the microbatches of its groups, and exchanges each with the member of
 * the neighbouring stage that has it. A message passes the wire up of its sender, in the order in
 * which messages were ready, then the link between the two, then the wire down of its receiver;
 * the parts of a message overlap on these. Acknowledgements take their share of both homes.
 *
 * A sum of gradients that a member owes the other replicas of its stage (pairwise.h) is sent as
 * soon as it is complete: each replica gets its share of the values, and sends the result of that
 * share to the others. Updates begin when all members have all results.
 *
 * Deterministic: equal inputs give equal results, bit for bit. */
#pragma once

#include "plan/groups.h"
#include "plan/schedule.h"

typedef struct strait_members_stage {
    strait_pipe_stage cost; // of one replica: of one microbatch, and of an update
    int n_replicas;
    int window;            // slots of each replica
    double gradient_bytes; // on the wire, of the sums of all values; 0: they are not summed
} strait_members_stage;

/* The arrays belong to the caller. */
typedef struct strait_members_spec {
    strait_schedule_kind kind;
    int n_stages;
    const strait_members_stage *stages;
    const strait_pipe_link *links;     // n_stages - 1; the rates are of a link between two members
    strait_groups groups;              // of the microbatches of a step
    const strait_group_owners *owners; // per stage
    int sums_pairwise;                 // otherwise a member owes one sum
    const double *up_bps, *down_bps;   // per member; 0: unlimited
    double control_s;                  // one-way delay between a member and the coordinator
} strait_members_spec;

/* One member, over the step. */
typedef struct strait_members_use {
    double busy_s;       // computing
    double up_s, down_s; // that its wires were busy
    double computed_s;   // when it had computed its last microbatch
    double reduced_s;    // when it had the sums of all replicas
} strait_members_use;

/* Simulates a step; *seconds is its length. `use` receives one entry per member, or is NULL.
 * STRAIT_EINVAL: a window is too small for the schedule. Memory is allocated for the call only. */
strait_err strait_members_simulate(const strait_members_spec *spec, strait_members_use *use,
                                   double *seconds);

/* Enlarges the windows of `stages`, which are those of the spec, up to `caps` (NULL: any number)
 * until a step takes at most `slack` longer than with all slots. Fill-drain and plain 1F1B keep
 * theirs. Errors as strait_members_simulate. */
strait_err strait_members_fit_windows(const strait_members_spec *spec, strait_members_stage *stages,
                                      const int *caps, double slack);
