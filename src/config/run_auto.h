/* run_auto.h - link.codec.name auto: which runs have it, and how a choice becomes options. */
#pragma once

#include "codec/ladder.h"
#include "config/run.h"

/* Replaces auto by none where there is nothing to choose: a run that neither names a codec nor
 * limits the compression, with one stage, without emulated rates, or with options of a certain
 * codec. STRAIT_ECONFIG where auto is named together with such options. strait_run_resolve calls
 * it. */
strait_err strait_run_resolve_codec(strait_run *run);

/* Whether the codec is still to be chosen (train/outlook/choose.h). Until then such a run is
 * planned with codec none. */
int strait_run_is_auto(const strait_run *run);

/* Whether the run file says nothing of a codec: no name, and no option of one. */
int strait_run_is_unnamed(const strait_run *run);

/* In a swarm, whose links can be measured, such a run with several stages has codec auto. */
strait_err strait_run_default_to_auto(strait_run *run);

/* Whether a link of the run file has a rate: link.emulate.rate, up or down. */
int strait_run_has_limits(const strait_run *run);

/* "80mbit" into `out`. */
void strait_run_show_rate(double bps, char *out, size_t capacity);

/* Sets the codec of a run as a run file would that names this code; `chosen_for` is the value of
 * link.codec.chosen_for, or empty. STRAIT_ECONFIG: options of the run do not go with it. */
strait_err strait_run_apply_rung(strait_run *run, const strait_codec_rung *rung,
                                 const char *chosen_for);
