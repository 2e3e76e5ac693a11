/* outlook_members.h - the outlook of replicas and homes: the speed of a run whose stages
 * have several members, what limits it, and what one more machine would bring. `strait plan` prints
 * it for times that were measured before the run; the coordinator of a swarm places newcomers by
 * it, with times that workers report. Pure functions. */
#pragma once

#include "stage/limits.h"

/* A run as the planner knows it before replicas are looked at one by one. All are borrowed. */
typedef struct strait_outlook_view {
    const strait_run_plan *plan;
    const strait_pipe *pipe; // stages as fast as all of their replicas together
    const int64_t *n_values; // gradients of each stage
    int *windows;            // of each replica of a stage
    int keeps_windows;       // they stay as they are when a replica comes; else they are widened
    /* Of a link between two members, per boundary, where that was measured (0: it was not); NULL:
     * links have the rate of the plan. */
    const double *link_bps;
} strait_outlook_view;

/* A replica that a stage may get. */
typedef struct strait_outlook_newcomer {
    double speed;            // beside the mean of the stage's other replicas
    int has_home;            // the rates are known; else its home is like that of the first
    double up_bps, down_bps; // 0: unlimited
} strait_outlook_newcomer;

typedef struct strait_outlook_members {
    double seconds;                             // of a step
    double reduce_s;                            // of it, after the last microbatch
    strait_members_use use[STRAIT_RUN_MEMBERS]; // by member
} strait_outlook_members;

/* The stage whose new replica would bring most; with train.outer, another pipeline. */
typedef struct strait_outlook_more {
    int stage;      // -1: none can have another replica, or a pipeline of all stages
    double gain;    // by which the speed is multiplied
    int n_machines; // that have to come for it
} strait_outlook_more;

/* Widens the windows of a run with replicas or homes as training does. */
strait_err strait_outlook_members_windows(const strait_outlook_view *view);

/* Simulates a step. */
strait_err strait_outlook_members_predict(const strait_outlook_view *view,
                                          strait_outlook_members *out);

/* What limits the step, by simulating it without each cost. `where` is a stage for compute and for
 * serialisation, else the link where it takes longest. */
strait_err strait_outlook_members_limit(const strait_outlook_view *view, strait_limit *out);

/* Adds a replica to a stage of a plan, as its last, and writes the result to *out, which may be the
 * plan itself. `stages` are those of its pipe and become as fast as the replicas are then together.
 * Returns 0, with the plan copied, where the stage can have no other. */
int strait_outlook_members_add(const strait_run_plan *plan, int stage,
                               const strait_outlook_newcomer *newcomer, strait_pipe_stage *stages,
                               strait_run_plan *out);

/* Seconds of a step with such a replica; INFINITY where there can be none. */
strait_err strait_outlook_members_with(const strait_outlook_view *view, int stage,
                                       const strait_outlook_newcomer *newcomer, double *seconds);

/* Newcomers could come one after the other, after which a step would take seconds[0], seconds[1],
 * ... instead of now_s. Returns how many should: as many as make it shortest, or more where that
 * costs less than 2%, and none where all of that would make it longer. Two together may bring what
 * the first alone does not. */
int strait_outlook_members_worth(double now_s, const double *seconds, int n);

/* What one more machine like the first of a stage would bring, as a replica of the stage for which
 * that is most. Pipelines that train on their own (train.outer) need a machine for each stage. */
strait_err strait_outlook_members_more(const strait_outlook_view *view, strait_outlook_more *out);
