/* outer_tensors.h - the tensors that a replica with an outer step has besides those of any stage,
 * by the names that checkpoints and snapshots have for them. */
#pragma once

#include "stage/outer/outer.h"

/* Tensor of a checkpoint that was saved while an exchange was under way; those of a swarm whose
 * steps overlap with exchanges always have it. */
#define STRAIT_OUTER_IN_FLIGHT "outer.in_flight"

enum {
    STRAIT_OUTER_NAME = STRAIT_PARAM_NAME + 40 // bytes, with the prefix of a replica
};

/* "outer.momentum.NAME" is the same on all replicas; "replica.1.residual.NAME" is not. Of the
 * anchor, whose tensors have the plain names of the weights: the replica's own weights. */
void strait_outer_name(int replica, strait_outer_tensor kind, const char *param,
                       char out[STRAIT_OUTER_NAME]);

/* Called with one tensor; a stream of NULL means that it is in host memory, or has none. */
typedef strait_err strait_outer_visit(void *user, struct strait_stream *stream, const char *name,
                                      strait_tensor tensor);

/* Visits the own weights, the momentum and the residuals of every weight that learns, and what an
 * exchange noted of it where steps overlap with exchanges, always in the same order and as those of
 * replica 0. Without `outer` the tensors have no memory: only the spec
 * is read. */
strait_err strait_outer_each(const strait_outer_spec *spec, const struct strait_outer *outer,
                             struct strait_stream *stream, strait_outer_visit *visit, void *user);
