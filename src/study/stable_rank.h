/* stable_rank.h - the stable rank ||W||_F^2 / ||W||_2^2 of matrices, over the steps of a training.
 *
 * It is at most the rank, and does not jump when a singular value is small but not zero. */
#pragma once

#include "report/document.h"
#include "study/summary.h"

/* Of a matrix [rows x columns], by power iteration; NaN for a matrix of zeros. */
double strait_stable_rank(const float *matrix, int64_t rows, int64_t columns);

/* Appends [step, rank] to the list `name` of `ranks`. */
void strait_stable_rank_note(json_t *ranks, const char *name, int64_t step, double rank);

/* Reads every checkpoint of a run and returns the ranks of the matrices of its blocks as an object
 * of lists, by their names. STRAIT_EDATA: a checkpoint is damaged. The caller releases *out. */
strait_err strait_stable_rank_read(const char *run_folder, json_t **out);

/* The section of a report: a table of first and last ranks and plots over the steps, for the rows
 * of the study and for further records with "name" and "stable_rank". */
strait_err strait_stable_rank_write(const strait_study *study, const struct strait_queue *queue,
                                    const json_t *records, struct strait_document *document);
