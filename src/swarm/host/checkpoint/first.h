/* first.h - the first state of a run that starts from the weights of another model
 * (train.init_from): a checkpoint of step 0, which the host writes before it invites workers and
 * gives to them as it gives later ones. Used by the host's thread alone. */
#pragma once

#include "swarm/host/state.h"

/* Whether the run's folder has a checkpoint of step 0. */
int strait_host_has_first(const struct host *h);

/* Writes it if the run starts from a source and has no checkpoint yet; a note says which tensors
 * were taken. Links are served meanwhile. Errors of strait_start_write (train/start_from.h). One
 * that another program wrote is checked: STRAIT_EDATA if workers cannot begin with it. */
strait_err strait_host_make_first(struct host *h, const strait_run_plan *plan);

/* The layers were split: writes it again if the tensors of boundaries depend on the split and were
 * made for another one. */
strait_err strait_host_fit_first(struct host *h, const strait_run_plan *plan);

/* Before the stages are assigned: tells the coordinator of it, unless they will be timed first, for
 * which the weights of the seed do, that nobody has to send. */
void strait_host_announce_first(struct host *h, int is_timed);

/* Waits until all stages have restored it, if they were timed. */
strait_err strait_host_restore_first(struct host *h);
