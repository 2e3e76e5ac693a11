/* cluster.h - the ranks of a job as places where stages are computed. */
#pragma once

#include <strait/cluster.h>

#include "config/run.h"

/* Whether stages of this process are to be put onto ranks. */
int strait_cluster_is_joined(void);

/* STRAIT_ECONFIG when there are more ranks than replicas of stages: one rank would have nothing to
 * do. */
strait_err strait_cluster_check(int n_members);

/* Writes the rank of every replica of every stage (strait_run_plan_member). STRAIT_ECONFIG as
 * above. */
strait_err strait_cluster_place(const strait_run *run, int n_members, int *ranks);

/* The part of the stages that ranks of this node compute, or this rank alone (of_rank); 1 without a
 * cluster and when there are too many ranks. */
double strait_cluster_share(const strait_run *run, int n_members, int of_rank);

/* Writes the run file of a stage that this rank computes: its share of the cores (device.threads)
 * and, unless another was chosen, its GPU (device.ordinal) are those of this rank. */
strait_err strait_cluster_write_run(const strait_run *run, int n_members, const char *path);

/* The rank and its machine: "rank 2 on node7". Borrowed until the next call in this thread. */
const char *strait_cluster_rank_text(int rank);

/* From now on strait_cluster_leave ends the whole job: a rank was lost. */
void strait_cluster_set_lost(void);

/* For the coordinator: asks a rank to start a stage with the run file at `run_path`, and answers
 * what the stage said about itself (stage/process/startup.h). Then lets it dial. STRAIT_ECLOSED,
 * STRAIT_ETIMEDOUT, or the error of the rank. */
strait_err strait_cluster_start(int rank, const char *startup_line, const char *run_path,
                                char **out_answer);
strait_err strait_cluster_go(int rank, int stage, int replica);
