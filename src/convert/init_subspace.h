/* init_subspace.h - when a run whose codec confines the weights to a subspace may start from
 * another model: when that one was trained in the same subspace.
 *
 * Weights of any other model are not in it, and projected on it they are another model. The source
 * must have the variant, the rank and the seed of the run, which decide what is outside of the
 * subspace; its basis may have moved since, and is taken with the weights. */
#pragma once

#include "convert/init_source.h"

/* Whether the codec of a plan confines weights to a subspace. */
int strait_init_is_confined(const strait_run_plan *plan);

/* STRAIT_ENOTSUP unless the source was trained in the subspace of the run, which confines. */
strait_err strait_init_check_subspace(const strait_run_plan *plan,
                                      const struct strait_init_source *source);

/* Checks that a weight which the run confines is taken from the source as it is stored there
 * (is_stored), and was confined there, too. STRAIT_ENOTSUP. */
strait_err strait_init_check_confined(const strait_run_plan *plan,
                                      const struct strait_init_source *source, const char *name,
                                      int is_stored);

/* The source's basis for a tensor of codec state that is one of its shape; NULL: it is another
 * tensor. Borrowed from the source. */
const unsigned char *strait_init_find_basis(const struct strait_init_source *source,
                                            const strait_safetensor *tensor);
