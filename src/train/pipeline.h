/* pipeline.h - the stages of a run behind a channel, driven as one.
 *
 * A pipeline turns what a trainer asks of the whole model into commands to each stage and combines
 * their replies: gradients and their norm, update, validation, checkpoints, traces. It knows the
 * stages by their channel (stage/channel.h) alone, so the same code drives local processes and the
 * workers of a swarm. One thread uses a pipeline.
 *
 * Functions pass on the errors of the channel, STRAIT_EAGAIN among them: the stages then went back
 * to an earlier step and what was asked for was not done. */
#pragma once

#include "stage/channel.h"
#include "train/executor.h"
#include "train/outlook/measured.h"

struct strait_pipeline;

/* Borrows both until close; channel->replies must be initialised. The executor's windows,
 * device, device_bytes and planned_tokens_per_s are filled by the functions below. */
strait_err strait_pipeline_open(struct strait_executor *executor,
                                struct strait_stage_channel *channel, struct strait_pipeline **out);
void strait_pipeline_close(struct strait_pipeline **pipeline); // accepts NULL

/* Times the passes of every stage: seconds of a microbatch, and one way to the next stage (0:
 * unknown). */
strait_err strait_pipeline_time_passes(struct strait_pipeline *pipeline, strait_step_times *times,
                                       double *delays_s);

/* Lets all stages measure the links between their first replicas at the same time, in both
 * directions, and writes the rates of each boundary that its ends agree on
 * (strait_measured_judge). Bit i of *differ: those of boundary i do not. */
strait_err strait_pipeline_probe(struct strait_pipeline *pipeline, int duration_ms,
                                 strait_measured *out, uint64_t *differ);

/* Times the passes of every stage and chooses from that how many microbatches each may hold:
 * executor->windows. */
strait_err strait_pipeline_choose_windows(struct strait_pipeline *pipeline);

/* Opens every stage with windows[stage] slots, all at once: drawing weights may take seconds. With
 * may_reuse a stage that has these slots already keeps its weights. */
strait_err strait_pipeline_open_stages(struct strait_pipeline *pipeline, const int *windows,
                                       int may_reuse);

/* Shares the groups out among the replicas that the plan has now, by `times` of one microbatch per
 * member (strait_shares_choose). The plan of the executor may get other replicas between two steps,
 * no more than when the pipeline was opened. */
void strait_pipeline_share(struct strait_pipeline *pipeline, const strait_step_times *times);

/* The microbatches that a replica of a stage computes in a step. */
int strait_pipeline_count_microbatches(const struct strait_pipeline *pipeline, int stage,
                                       int replica);

/* As the functions of strait_executor_ops. */
strait_err strait_pipeline_gradients(struct strait_pipeline *pipeline, int64_t step,
                                     strait_executor_report *out);
strait_err strait_pipeline_update(struct strait_pipeline *pipeline, int64_t step, float factor);
/* After each step, `done` in all: exchanges that are due, where replicas train on their own. */
strait_err strait_pipeline_average(struct strait_pipeline *pipeline, int64_t done,
                                   strait_executor_report *report);
/* The stages were restored to `done` steps, after the averages of that step, all replicas from the
 * state of the first. With has_sent that state has the weights of the exchange that was under way
 * then, if one was: it is begun again with the first replica as its only member. */
void strait_pipeline_restart_average(struct strait_pipeline *pipeline, int64_t done, int has_sent);
/* Replicas keep their state and have other numbers and links: replica r was number before[r] (-1:
 * it is new, and no member of an exchange that is under way, which is begun again). */
void strait_pipeline_regroup_average(struct strait_pipeline *pipeline, const int *before);
strait_err strait_pipeline_validate(struct strait_pipeline *pipeline, int64_t step,
                                    double *loss_sum);
strait_err strait_pipeline_save(struct strait_pipeline *pipeline, const char *folder, int64_t step);
strait_err strait_pipeline_load(struct strait_pipeline *pipeline,
                                struct strait_checkpoint *checkpoint);
strait_err strait_pipeline_trace(struct strait_pipeline *pipeline, const char *path);

/* Of the last gradients: the first stage that computed non-finite values of its own; -1: none. Of
 * replicas that train on their own: in all of them, else the step counts without those that did. */
int strait_pipeline_nonfinite_stage(const struct strait_pipeline *pipeline);
/* The same of one replica. */
int strait_pipeline_nonfinite_in(const struct strait_pipeline *pipeline, int replica);

/* Of the last gradients: seconds that a stage computed, without waiting. */
double strait_pipeline_busy_seconds(const struct strait_pipeline *pipeline, int stage);

/* Of the last update: what keeping a snapshot cost, the largest over all stages (0: none was kept),
 * and how long copying that of one stage to a neighbour would take. */
double strait_pipeline_snapshot_seconds(const struct strait_pipeline *pipeline);
double strait_pipeline_copy_seconds(const struct strait_pipeline *pipeline, int stage);
/* What the link of a stage to the next one carried lately, or to the previous one for the last
 * stage; 0: unknown. */
double strait_pipeline_link_bps(const struct strait_pipeline *pipeline, int stage);
