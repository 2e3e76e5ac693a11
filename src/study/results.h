/* results.h - results.jsonl: one line per finished or failed run, found by the run's key.
 *
 * The file can be carried to another machine, joined with others by cat, and read by the next
 * sitting: a run whose key has a result is not trained again. Of two lines with one key the later
 * wins, and keeps the test losses of the earlier one on other texts. A line that a kill truncated,
 * the last, is dropped. */
#pragma once

#include "base/json.h"

struct strait_results;

/* Reads the file, which may be absent. STRAIT_EDATA: a line other than the last is damaged. The
 * caller closes *out. */
strait_err strait_results_open(const char *path, struct strait_results **out);
void strait_results_close(struct strait_results **results); // accepts NULL

/* How many runs have a record. */
int strait_results_count(const struct strait_results *results);

/* The result of a run, or NULL: there is none, or the run failed. Borrowed until close. */
const json_t *strait_results_find(const struct strait_results *results, const char *key);

/* The digest of the test text of a record, "" where it has none. Borrowed. */
const char *strait_results_text(const json_t *record);

/* The test loss of a record on the text with this digest; NaN: none. */
double strait_results_test_loss(const json_t *record, const char *text);

/* The record of the run with the same key that was evaluated on this text; the record itself where
 * none is known. Borrowed. */
const json_t *strait_results_on(const json_t *record, const char *text);

/* Appends a record, which has a member "key", as one synced line. Takes its own reference. */
strait_err strait_results_add(struct strait_results *results, json_t *record);

/* Takes over the results of another file that are not known here, or not on their test text; *n_new
 * says how many. They are appended to the file too, unless `is_dry`. */
strait_err strait_results_merge(struct strait_results *results, const char *path, int is_dry,
                                int *n_new);
