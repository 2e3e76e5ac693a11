/* recipe.h - from the words of a run file to the structs of the rooms below. */
#pragma once

#include "backend/backend.h"
#include "codec/codec.h"
#include "config/run.h"
#include "model/stage.h"
#include "net/emulate/emulate.h"
#include "optim/lr_schedule.h"
#include "optim/optimizer.h"
#include "plan/schedule.h"

typedef struct strait_run_plan {
    strait_shape shape;
    strait_optim_spec optim; // of every stage but the last: strait_run_plan_optim
    strait_lr_schedule rate;
    int64_t sequences;  // in a step
    int64_t microbatch; // sequences in a microbatch
    int64_t n_microbatches;
    int n_stages;
    strait_layer_range parts[STRAIT_RUN_STAGES]; // of each stage
    strait_schedule_kind schedule;
    strait_codec_spec codec; // of boundary 0 with one slot; the others differ in those two only
    strait_emulate_spec emulate;
    double meter_bps, meter_delay_s; // of Protocol NanoGPT's meter; 0: nobody asked
    int recomputes;
    size_t logit_bytes;   // made at a time by the head; 0: what suits a cpu
    size_t scratch_bytes; // that the device takes besides, a stage
} strait_run_plan;

/* `vocab` is used where the run file leaves model.vocab out. STRAIT_ECONFIG when sizes do not fit
 * together. */
strait_err strait_run_plan_init(const strait_run *run, int64_t vocab, strait_run_plan *out);

/* Makes the shape fit the codec: writers in coordinates, narrow ends. Done by make. STRAIT_ECONFIG
 * for a codec that no model here can serve. */
strait_err strait_run_plan_fit_codec(strait_run_plan *plan);

/* How many numbers are trained, those of the codecs included. */
strait_err strait_run_plan_params(const strait_run_plan *plan, int64_t *out);

/* A codec half on a stage, without memory, for the caller to close; NULL where there is no
 * boundary. */
strait_err strait_run_plan_codec_dry(const strait_run_plan *plan, int stage, strait_codec_side side,
                                     struct strait_codec **out);

/* Its parameters. */
strait_err strait_run_plan_codec_params(const strait_run_plan *plan, int stage,
                                        strait_codec_side side,
                                        strait_param out[STRAIT_CODEC_PARAMS], int *n);

strait_backend_spec strait_run_plan_backend(const strait_run *run);

/* How a stage's weights are updated: in the last, what writes the stream has the rate of other
 * matrices. */
strait_optim_spec strait_run_plan_optim(const strait_run_plan *plan, int stage);

/* Whether a stage reads token ids; the last reads targets in any case. */
int strait_run_plan_needs_tokens(const strait_run_plan *plan, int stage);

/* A stage with room for n_slots microbatches in flight. */
strait_stage_spec strait_run_plan_stage(const strait_run_plan *plan, int stage, int n_slots);

/* Whether the basis of a subspace codec turns after `step` steps. */
int strait_run_plan_updates_basis(const strait_run_plan *plan, int64_t step);

/* The codec of the boundary behind stage `boundary`. */
strait_codec_spec strait_run_plan_codec(const strait_run_plan *plan, int boundary, int n_slots);
