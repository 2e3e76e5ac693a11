/* replicas.h - which spares become further replicas of stages, how replicas reach each other and
 * how they share the work. Used by the host's thread alone. */
#pragma once

#include "swarm/host/state.h"

/* Chooses how many replicas a stage may have at most, and makes the plan one for any number up to
 * that; every stage begins with one. */
void strait_host_plan_replicas(struct host *h, strait_run_plan *plan);
/* The generation is ready: the plan, the channel and the shares follow its replicas. */
void strait_host_adopt_replicas(struct host *h);
/* Before a step: makes spares that are not to be kept replicas of the slowest stages. */
void strait_host_recruit(struct host *h, int64_t step);
/* A step was computed: notes how fast each worker was. */
void strait_host_note_speeds(struct host *h);
/* Describes all peers of a replica of a stage; `memory` keeps the further ones. */
void strait_host_describe_neighbours(struct host *h, int stage, int replica, strait_task *task,
                                     unsigned char *memory, size_t capacity);
/* Fills in which replica a worker is, and how many its stage and the neighbours have. */
strait_stage_replicas strait_host_replicas_of(const struct host *h, int stage, int replica);
