/* run_key.h - which runs compute the same: results are found by this key, on any machine. */
#pragma once

#include "base/digest/hash.h"
#include "base/json.h"
#include "config/run.h"

/* The options that the overrides of a run and their presets set to other values than the defaults,
 * as an object of texts. Options that change neither what a run computes nor how fast (its name,
 * how often it saves) are left out, and so is what is derived from others: a later version with
 * more options gives an unchanged run the same settings. Data files are named by their contents, so
 * that a result is found again where the data has another path. STRAIT_EIO: a data file cannot be
 * read. The caller releases *out. */
strait_err strait_run_key_settings(const char *const *sets, int n_sets, json_t **out);

/* The key of these settings. */
strait_err strait_run_key(const json_t *settings, char out[STRAIT_HASH_TEXT]);
