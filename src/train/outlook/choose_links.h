/* choose_links.h - the rates of links, for the choice of a codec. */
#pragma once

#include "train/outlook/choose.h"
#include "train/outlook/outlook.h"

/* Multiplies every rate of a plan; 0: they become unlimited. */
void strait_choose_scale_rates(strait_run_plan *plan, double factor);

/* The rates of all boundaries (strait_choose_rate), as link.codec.chosen_for lists them. */
void strait_choose_show_rates(const strait_run_plan *plan, const strait_measured *measured,
                              char *out, size_t capacity);

/* Describes the wire that the crossings of a step occupy longest: a link, or all that a stage's
 * home sends or receives. `share` of its rate is left for them. Empty: no wire has a rate. */
void strait_choose_slowest(const strait_outlook *o, double share, char out[STRAIT_CHOICE_LIMIT]);
