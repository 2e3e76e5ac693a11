/* export_files.h - the small files of an exported folder: config.json and what goes with it. */
#pragma once

#include "config/run_plan.h"
#include "convert/hf_config.h"
#include "store/checkpoint.h"

/* What the files say about the model. */
typedef struct strait_export_about {
    const struct strait_checkpoint *checkpoint;
    const strait_run_plan *plan;
    strait_hf_class class;
    const char *dtype; // "float32", "bfloat16" or "float16"
    const char *run;   // the run's folder, for run.yaml and metrics.jsonl
    const char *end;   // the end-of-text token; NULL: unknown
    int32_t end_id;    // -1: unknown
    int has_tokenizer;
} strait_export_about;

/* Each writes one file of the folder `out`. */
strait_err strait_export_config(const strait_export_about *about, const char *out);
/* tokenizer_config.json and generation_config.json, unless the run's folder has them. */
strait_err strait_export_companions(const strait_export_about *about, const char *out);
/* modeling_strait.py and configuration_strait.py. */
strait_err strait_export_remote_code(const char *out);
/* README.md, the model card. */
strait_err strait_export_card(const strait_export_about *about, const char *out);
