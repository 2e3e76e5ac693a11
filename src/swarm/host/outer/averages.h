/* averages.h - pipelines of workers that train on their own and average their weights now and then
 * (train.outer): which spares complete one, who took part, and how averages go with recovery. Used
 * by the host's thread alone. */
#pragma once

#include "stage/commands.h"
#include "swarm/coordinator/coordinator.h"
#include "swarm/host/verify/claims.h"

struct host;
struct strait_executor;
struct strait_executor_report;

/* What a worker of a pipeline reported lately (verify/pipeline_levels.h). Another key or stage has
 * another history. */
struct host_worker_level {
    strait_fingerprint key;
    int stage;
    int64_t step; // of the newest value
    strait_claims_level loss, squares;
};

struct host_averages {
    int pipelines[STRAIT_SWARM_REPLICAS]; // number of the pipeline that each replica is in
    int n_pipelines;
    int64_t unsent_at; // step of a checkpoint that was not of an exchange under way; -1: none
    int has_waited;    // for all workers, before the first step
    uint32_t kept_generation; // in which the first pipeline took a snapshot last
    int64_t noted_at;         // the step of the last average that was logged
    char members[256];        // who took part in the last one that was, as text
    /* Of each worker: steps that its pipeline skipped for its values, and the last of them. */
    struct {
        int64_t step;
        int n;
    } unusable[STRAIT_SWARM_WORKERS];
    unsigned char secret[32]; // from which the tokens of pairs that meet at the relay are derived
    int has_secret;
    int has_told_limit; // that the relay may carry no more
    /* The update that each worker was sent last: pipelines clip their gradients apart. */
    struct {
        int64_t step;
        float factor;
    } updates[STRAIT_SWARM_WORKERS];
    struct host_worker_level levels[STRAIT_SWARM_WORKERS];
};

/* The generation is ready: notes its pipelines. */
void strait_host_adopt_pipelines(struct host *h);

/* Before a step: makes spares that are not to be kept pipelines. Before the first step of a run
 * with stages.replicas above 1 it waits a while until there are workers for all of them. */
strait_err strait_host_recruit_pipelines(struct host *h, int64_t step);

/* ---- relayed.c ---- */
/* Whether two workers can be connected through the relay alone. */
int strait_host_needs_relay(struct host *h, int worker, int other);
/* Writes the address at which two workers meet in this generation; "" after an error. */
void strait_host_relay_address(struct host *h, int worker, int other, char out[STRAIT_ADDRESS_MAX]);
/* Returns the bits per second, in each direction, that averages of all pipelines would send through
 * the relay if these workers of all stages became one more; INFINITY: not known yet. */
double strait_host_relayed_bps(struct host *h, const int *slots);

/* Averages that are due after `done` steps, until all pipelines that are left have applied them. As
 * strait_executor_ops.average. */
strait_err strait_host_average(struct strait_executor *executor, int64_t done,
                               struct strait_executor_report *out);

/* The same once, for steps that are computed again. STRAIT_EAGAIN: the stages were restored. */
strait_err strait_host_average_once(struct host *h, int64_t done);

/* The gradients of a step: stages[r] is the first stage of pipeline r whose values cannot be used
 * (-1: all can), for non-finite ones, or because they are far from those of other steps or
 * pipelines. The first kind skips the step with its pipeline, and the third time within 32 steps
 * the pipeline is left out for a while; the second kind is at once. STRAIT_EAGAIN: the others
 * compute the step again. */
strait_err strait_host_judge_pipelines(struct host *h, int64_t step, const int *stages,
                                       const int *is_nonfinite);

/* Whether a snapshot is taken of the state after `step` steps. An average follows some updates and
 * changes the weights again: workers take it after that. */
int strait_host_average_snapshot(const struct host *h, int64_t step);

/* A worker is sent an update; and the updates of all members once more, to those that lack it. */
void strait_host_note_update(struct host *h, int worker, const strait_stage_command *command);
strait_err strait_host_repeat_updates(struct host *h, int64_t step);
