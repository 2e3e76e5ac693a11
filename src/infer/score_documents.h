/* score_documents.h - scores fine-tuning data: every document by itself, prompts not at all. */
#pragma once

#include "data/corpus.h"
#include "infer/trained_model.h"

/* Scores the documents of a corpus that has some (data/shard.h), as a validation does: a document
 * that is longer than the context loses its end. The model must be prepared to score. Progress
 * counts targets. */
strait_err strait_score_documents(struct strait_trained_model *trained,
                                  const struct strait_corpus *corpus,
                                  strait_trained_model_progress progress, strait_model_score *out);
