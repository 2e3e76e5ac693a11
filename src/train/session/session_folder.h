/* session_folder.h - the files of a run's folder, and the codec that they fix. */
#pragma once

#include <strait/session.h>

#include "config/run.h"

#define STRAIT_FOLDER_RUN         "run.yaml"
#define STRAIT_FOLDER_TOKENIZER   "tokenizer.json"
#define STRAIT_FOLDER_METRICS     "metrics.jsonl"
#define STRAIT_FOLDER_CHECKPOINTS "checkpoints"

/* Whether a folder holds a run: run.yaml alone is no sign of one, because users keep run files in
 * folders of their own. */
int strait_session_holds_run(const char *folder);

/* Copies the tokenizer of a run that has one, so that eval and generate need no other file. */
strait_err strait_session_copy_tokenizer(const strait_run *run, const char *folder);

/* Chooses the codec and the rows of tables of a run that leaves them to the program, and notes the
 * choice. *out is a copy of the run with it, which the caller frees with strait_alloc_free, or NULL
 * where the run has both. Where it has a codec, a link that the choice misjudged is noted. Errors
 * as strait_choose_codec. */
strait_err strait_session_choose(const strait_session_spec *spec, int is_swarm, strait_run **out);
