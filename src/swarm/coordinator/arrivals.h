/* arrivals.h - which snapshots go on arriving at workers, so that they are waited for. */
#pragma once

#include "swarm/coordinator/coordinator.h"

/* A worker has received so many bytes of snapshots. */
void strait_coordinator_note_arrived(struct strait_coordinator *c, int slot,
                                     const strait_snapshot_arrivals *arrived);

/* A phase begins, in which nothing has arrived yet. */
void strait_coordinator_forget_arrivals(struct strait_coordinator *c);

/* Returns whether any stage still receives the snapshot that it restores. Stages that wait for one
 * sender get theirs one after the other. */
int strait_coordinator_is_restoring(const struct strait_coordinator *c, int64_t now_ns);

/* Returns whether a neighbour goes on receiving the copy of a stage. */
int strait_coordinator_is_copied(const struct strait_coordinator *c, int stage, int64_t now_ns);
