/* pipeline_state.h - the inside of a pipeline, for its files: ../pipeline.c opens stages and takes
 * steps, files.c saves and loads, measure.c measures stages and links, averaging.c averages
 * replicas that train on their own.
 */
#pragma once

#include "train/pipeline.h"
#include "train/pipeline/exclusion.h"
#include "train/step_commands.h"

enum {
    STRAIT_PIPELINE_SPANS = 2048 // that is a picture; those of a longer step are left out
};

struct strait_pipeline {
    struct strait_executor *executor;
    struct strait_stage_channel *channel;
    int n_stages;
    strait_group_owners owners[STRAIT_RUN_STAGES]; // of the groups, in each stage
    struct strait_step_commands steps;
    float *joined; // squares of all stages without gaps, or a basis
    /* What the accessors report, kept because the next command overwrites the replies. */
    double busy_s[STRAIT_RUN_STAGES];
    int nonfinite_stage;
    double snapshot_s, copy_s[STRAIT_RUN_STAGES], link_bps[STRAIT_RUN_STAGES];
    strait_simulate_span spans[STRAIT_PIPELINE_SPANS]; // of the last step, simulated from its times
    /* Replicas that train on their own (train.outer); averaging.c. */
    struct {
        double norms[STRAIT_RUN_REPLICAS];  // of the last gradients of each; NaN: not to be used
        int nonfinite[STRAIT_RUN_REPLICAS]; // the first stage of each with such values; -1: none
        uint64_t known_lost;                // replicas whose loss was reported
        int fragment;                       // of the exchange under way; -1: none
        int64_t sent_at;                    // the step after which it was begun
        int attempt;      // its number on the wire: it rises with every BEGIN of the exchange
        int n_tries;      // of them among the replicas of one generation
        int must_resend;  // replicas have other links since: it is begun again
        int is_applying;  // it is complete: all that are left apply it, whoever is lost meanwhile
        int64_t ended_at; // the step after which the last one was begun and applied
        int ended_fragment;
        /* Of the averages after step `reported_at`: who took part, by their labels, and costs. */
        int64_t reported_at;
        uint64_t recorded;
        double bytes_per_token, divergence;
        uint64_t members;
        uint64_t eligible;                 // replicas that have a difference for it
        struct strait_exclusion exclusion; // who is left out of it
        double bytes[STRAIT_RUN_MEMBERS];  // received from other replicas since the last average
        int64_t averaged_at;               // step of the last average
        double tokens; // that a replica trained on between the last two averages
    } outer;
};

static inline const strait_run_plan *plan_of(const struct strait_pipeline *p) {
    return &p->executor->plan;
}

static inline int is_lost(const struct strait_pipeline *p, int replica) {
    return (int)(p->channel->lost >> replica & 1);
}

/* The first replica that is not lost; 0 in runs that lose none. */
static inline int first_replica(const struct strait_pipeline *p) {
    int replica = 0;
    while (is_lost(p, replica))
        replica++;
    return replica;
}

/* The first replica of a stage. */
static inline int first_of(const struct strait_pipeline *p, int stage) {
    return strait_run_plan_member(plan_of(p), stage, first_replica(p));
}

/* Its reply: what all replicas of a stage report alike is taken from there. */
static inline const strait_stage_reply *reply_of(const struct strait_pipeline *p, int stage) {
    return &p->channel->replies.items[first_of(p, stage)];
}

/* Sends one command to the first replica of every stage. */
strait_err strait_pipeline_command_first(struct strait_pipeline *p,
                                         const strait_stage_command *command);

/* Sends one command to every replica that is not lost. */
strait_err strait_pipeline_command_all(struct strait_pipeline *p,
                                       const strait_stage_command *command);

/* Of the gradients of replicas that train on their own: notes the norm of each, and returns their
 * mean; NaN if no replica has a finite one. `sum` gets the loss of all tokens of the step, as those
 * with a finite norm measure it. */
double strait_pipeline_local_norms(struct strait_pipeline *p, double *sum);

/* The update of each of them, clipped by its own norm; one without a finite norm skips it. */
strait_err strait_pipeline_local_updates(struct strait_pipeline *p, int64_t step);

/* Continues after `done` steps, read from a checkpoint. */
strait_err strait_pipeline_resume_average(struct strait_pipeline *p,
                                          const struct strait_checkpoint *checkpoint);
