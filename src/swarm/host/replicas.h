/* replicas.h - which spares become further replicas of stages (placing.c), how replicas reach each
 * other and how they share the work. Used by the host's thread alone. */
#pragma once

#include "swarm/host/state.h"

/* Returns the owner of a stage. It may have been banned since the replies came that the caller
 * handles: then a worker that is nobody, without keys, speed and device. Use this instead of the
 * slot wherever the coordinator's phase may be WAITING: between two barriers every stage has an
 * owner. */
const strait_swarm_worker *strait_host_owner(const struct host *h, int stage);
/* Refuses what replicas in a swarm cannot be combined with: STRAIT_ECONFIG. */
strait_err strait_host_check_replicas(const struct host *h, const strait_run_plan *plan);
/* Chooses how many replicas a stage may have at most, and makes the plan one for any number up to
 * that; every stage begins with one. */
void strait_host_plan_replicas(struct host *h, strait_run_plan *plan);
/* The generation is ready: the plan, the channel and the shares follow its replicas. */
void strait_host_adopt_replicas(struct host *h);
/* A step was computed: notes how fast each worker and each stage was. */
void strait_host_note_speeds(struct host *h, const strait_executor_report *report);
/* Returns how many replicas a stage may have at most. */
int strait_host_replicas_limit(const struct host *h, int stage);
/* Returns the rate of a worker's home in a stage, up or down: that of the run file or what its
 * owner lends, whichever is lower; 0: unlimited. */
double strait_host_up_bps(const struct host *h, int worker, int stage);
double strait_host_down_bps(const struct host *h, int worker, int stage);
/* Returns how fast a worker is beside the owner of a stage, by what both reported; 1: unknown. */
double strait_host_relative_speed(const struct host *h, int worker, int stage);
/* Describes all peers of a replica of a stage; `memory` keeps the further ones. */
void strait_host_describe_neighbours(struct host *h, int stage, int replica, strait_task *task,
                                     unsigned char *memory, size_t capacity);
/* Fills in which replica a worker is, and how many its stage and the neighbours have. */
strait_stage_replicas strait_host_replicas_of(const struct host *h, int stage, int replica);

/* ---- placing.c ---- */
/* Before a step: makes spares that are not to be kept replicas of the stages where that brings
 * most. An error ends the run. */
strait_err strait_host_recruit(struct host *h, int64_t step);
/* Before a step: once some steps of a generation were timed, logs how fast it is and what one more
 * worker would bring, for the page too. Errors as strait_host_recruit. */
strait_err strait_host_tell_outlook(struct host *h, int64_t step);
/* Whether replicas may come before this step: the last change is over, and another pays. */
int strait_host_may_recruit(const struct host *h, int64_t step);
/* Workers that take no part. */
int strait_host_count_idle(const struct host *h);
