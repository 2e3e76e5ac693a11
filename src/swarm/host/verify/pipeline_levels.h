/* pipeline_levels.h - whether what pipelines that train on their own (train.outer) report is close
 * to what they and the others reported before.
 *
 * Each worker has a history of its own, which no other can write: a liar cannot make an honest
 * pipeline look implausible unless most pipelines lie. Used by the host's thread alone, while the
 * replies to a step are there. */
#pragma once

#include <stdint.h>

struct host;

/* Returns the loss per token of the microbatches of one replica. */
double strait_host_replica_loss(const struct host *h, int replica);

/* Returns the first stage of a replica whose loss or squares are far from its own of the last
 * steps, or from those of most other replicas; -1: none. */
int strait_host_find_far(struct host *h, int64_t step, int replica);

/* Adds the values of a replica, which are believed, to the histories of its workers. */
void strait_host_accept_pipeline(struct host *h, int64_t step, int replica);
