/* codec.h - link.codec.name auto in a swarm whose run file gives no rates: before the run has
 * weights, its workers measure all links at the same time, and the codec follows from that
 * (train/outlook/choose.h). It then never changes; a link that turns out to be another is only
 * warned of. Used by the host's thread alone. */
#pragma once

#include "swarm/host/state.h"

/* Chooses the codec of a run whose codec is still auto, and plans it again: from the record of the
 * folder, or from a measurement by the workers that have joined. Errors of strait_choose_codec, and
 * of a swarm that cannot begin. */
strait_err strait_host_choose_codec(struct host *h, strait_run_plan *plan);

/* Measures stages and links, into h->probes. The stages of h->executor are ready. If that fails
 * several times, because workers come and go, is_known stays 0. */
strait_err strait_host_measure(struct host *h);

/* Before a step: if the codec was chosen by a measurement and it is time, measures the links again
 * and warns of those that are half or twice as fast, once for each. STRAIT_EAGAIN: the stages were
 * restored meanwhile. */
strait_err strait_host_check_links(struct host *h);
