/* init.h - the first checkpoint of a run that starts from the weights of another model
 * (train.init_from).
 *
 * The run first saves its initial values, as its seed gives them. Those tensors that the source has
 * too, under the same name and with the same shape, are then replaced; the rest stays new. What
 * belongs to a codec, and so to a cut, is taken only if both are the same. A codec that confines
 * weights to a subspace starts only from a model of the same subspace (init_subspace.h). */
#pragma once

#include "convert/files.h"

/* Writes the checkpoint of step 0 of the run's folder from the one in the folder `initial`, with
 * tensors of `source`. A note says how many were taken and which were not. STRAIT_EDATA: nothing
 * fits, or the source is damaged. STRAIT_ENOTSUP: the run's codec confines the
 * weights, and the source was not trained in the same subspace. */
strait_err strait_init_write(const char *initial, const char *source, const char *run,
                             const strait_convert_notes *notes);

/* Removes the folder `initial` with its checkpoint of step 0. The thread's error stays. */
void strait_init_discard(const char *initial);
