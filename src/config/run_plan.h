/* run_plan.h - from the options of a run to the specifications that the modules below take: shape,
 * optimizer, learning-rate schedule, split, pipeline schedule, codec and link emulation.
 *
 * A plan is plain data and follows from the run and the vocabulary alone, so that every stage
 * computes the same plan. */
#pragma once

#include "backend/backend.h"
#include "codec/codec.h"
#include "config/run.h"
#include "model/stage.h"
#include "net/emulate/emulate.h"
#include "optim/lr_schedule.h"
#include "optim/optimizer.h"
#include "plan/groups.h"
#include "plan/outer.h"
#include "plan/schedule.h"

/* How replicas that train on their own average their weights (train.outer). */
typedef struct strait_outer_params {
    strait_outer_schedule schedule; // sync_every 0: they sum their gradients in every step
    int bits;                       // of a difference on the wire: 32, 8, 4 or 2
    int has_feedback;               // what rounding loses is added to the next difference
    int keeps_norm;                 // averages are as long as what they average
    float learning_rate, momentum;
    strait_outer_state average_state;
    int state_bits; // of a value of average_state on the wire: 32, 8, 4 or 2
} strait_outer_params;

typedef struct strait_run_plan {
    strait_shape shape;
    strait_optim_spec optim; // for stages before the last; see strait_run_plan_optim
    strait_lr_schedule lr_schedule;
    int64_t sequences;  // per step
    int64_t microbatch; // sequences per microbatch
    int64_t n_microbatches;
    int n_stages;
    strait_layer_range stage_layers[STRAIT_RUN_STAGES];
    int replicas[STRAIT_RUN_STAGES]; // of each stage
    int n_members;                   // replicas of all stages
    int replicas_limit;              // most that a stage may get while the run goes on; 0: fixed
    strait_groups groups;            // of the microbatches of a step
    int reduce_bits;                 // of a gradient between replicas: 32, 8 or 4
    int sums_pairwise; // groups are summed pairwise; otherwise a replica adds its own in order
    strait_outer_params outer;
    strait_schedule_kind schedule;
    strait_codec_spec codec;     // for boundary 0 with one slot; see strait_run_plan_codec
    strait_emulate_spec emulate; // of any link; see strait_run_plan_emulate
    double up_bps[STRAIT_RUN_MEMBERS],
        down_bps[STRAIT_RUN_MEMBERS]; // of each replica; 0: unlimited
    double meter_bps, meter_delay_s;  // meter of Protocol NanoGPT; 0: not wanted
    int staleness;                    // steps that updates are late: 0 or 1
    int n_late;                       // stages, from the first, whose updates are late
    float extrapolation;              // of late weights, in updates
    int packs;                        // documents share rows; data.pack
    int recomputes;
    size_t logit_bytes;   // logits that the head computes at a time; 0: as suits a CPU
    size_t scratch_bytes; // that the device needs per stage for its kernels
} strait_run_plan;

/* Computes the plan of a resolved run. `vocab` is used where model.vocab is 0. STRAIT_ECONFIG names
 * options that do not fit together. */
strait_err strait_run_plan_init(const strait_run *run, int64_t vocab, strait_run_plan *out);

/* Adapts the shape to what the codec needs of the model, such as coordinates in a subspace or
 * bottleneck ends. strait_run_plan_init does so itself. STRAIT_ECONFIG for a codec that no model of
 * this program can serve. */
strait_err strait_run_plan_fit_codec(strait_run_plan *plan);

/* Fills in the codec from the run's options, as strait_run_plan_init does, whose first parts must
 * be known: shape, stages, microbatch and schedule. */
strait_err strait_run_plan_make_codec(const strait_run *run, strait_run_plan *plan);

/* Parameters of a stage, codecs included; and those of them in tables by token id other than the
 * embedding and the head. */
typedef struct strait_run_plan_count {
    int64_t all, tables;
} strait_run_plan_count;

strait_err strait_run_plan_count_stage(const strait_run_plan *plan, int stage,
                                       strait_run_plan_count *out);

/* The number of trained parameters, codecs included. */
strait_err strait_run_plan_params(const strait_run_plan *plan, int64_t *out);

/* One side of a codec on a stage, without memory, for the caller to close; *out is NULL where the
 * stage has no boundary on that side. */
strait_err strait_run_plan_codec_dry(const strait_run_plan *plan, int stage, strait_codec_side side,
                                     struct strait_codec **out);

/* The parameters of that side: names, roles and shapes. */
strait_err strait_run_plan_codec_params(const strait_run_plan *plan, int stage,
                                        strait_codec_side side,
                                        strait_param out[STRAIT_CODEC_PARAMS], int *n);

/* The device of a stage, from 0: device.ordinal, or with `auto` the devices of this machine in
 * turn.
 */
int strait_run_ordinal(const strait_run *run, int stage);

/* The precision of activations. All stages have the same, because activations cross between them:
 * with device.precision `auto` the least of their devices. *why: as strait_backend_precision. */
strait_dtype strait_run_choose_precision(const strait_run *run, const char **why);

/* What a stage opens as its device. */
strait_backend_spec strait_run_plan_backend(const strait_run *run, int stage);

/* The optimizer of a stage. In the last stage, which sends no activations, residual output
 * projections have the learning rate of other matrices. */
strait_optim_spec strait_run_plan_optim(const strait_run_plan *plan, int stage);

/* Whether a stage needs token ids. The last stage always reads targets. */
int strait_run_plan_needs_tokens(const strait_run_plan *plan, int stage);

/* The specification of a stage that holds n_slots microbatches in flight. */
strait_stage_spec strait_run_plan_stage(const strait_run_plan *plan, int stage, int n_slots);

/* Whether the shared basis of the codec is updated after `step` steps. */
int strait_run_plan_updates_basis(const strait_run_plan *plan, int64_t step);

/* Fills in replicas and groups. strait_run_plan_init does so itself. STRAIT_ECONFIG for numbers
 * that do not fit, and for a codec that replicas cannot share. */
strait_err strait_run_plan_fit_replicas(const strait_run *run, strait_run_plan *plan);

/* From now on the replicas of the stages may change, up to the numbers that the plan has: its
 * memory is that of any such number. Every stage begins with one. */
void strait_run_plan_make_elastic(strait_run_plan *plan);

/* Changes the replicas of the stages of an elastic plan, and the order of groups with them. */
void strait_run_plan_set_replicas(strait_run_plan *plan, const int *replicas);

/* Replicas of all stages are numbered stage by stage: the number of one, and back. */
int strait_run_plan_member(const strait_run_plan *plan, int stage, int replica);
void strait_run_plan_locate(const strait_run_plan *plan, int member, int *stage, int *replica);

/* Fills in the emulated links. strait_run_plan_init does so itself. STRAIT_ECONFIG for lists of
 * rates that do not fit the stages. */
strait_err strait_run_plan_fit_emulate(const strait_run *run, strait_run_plan *plan);

/* The emulation of the links of one replica: `emulate`, and what its links share. */
strait_emulate_spec strait_run_plan_emulate(const strait_run_plan *plan, int stage, int replica);

/* Fills in the adapters of train.lora. strait_run_plan_init does so itself. STRAIT_ECONFIG for
 * targets that the model does not have, and for a codec that would have to be trained. */
strait_err strait_run_plan_fit_lora(const strait_run *run, strait_run_plan *plan);

/* Fills in which stages have late updates. strait_run_plan_init does so itself. STRAIT_ECONFIG:
 * some stages update at once, and gradients are clipped by the norm of all. */
strait_err strait_run_plan_fit_late(const strait_run *run, strait_run_plan *plan);

/* Refuses what late updates (train.staleness) cannot be combined with. strait_run_plan_init does so
 * itself. */
strait_err strait_run_plan_check_late(const strait_run_plan *plan);

/* Refuses what the workers of a swarm cannot compute: late updates, because their step protocol has
 * one command at a time, which a lost worker's successor repeats; and averages of optimizer state,
 * which they could not check. */
strait_err strait_run_plan_check_swarm(const strait_run_plan *plan);

/* The most microbatches that a stage may hold: those of a step, and with late updates of two. */
int64_t strait_run_plan_slots_max(const strait_run_plan *plan);

/* "stage 2", or "stage 2, replica 1" where the stage has several. */
void strait_run_plan_member_name(const strait_run_plan *plan, int member, char *out, size_t size);

/* Whether replicas train on their own and average their weights now and then. */
int strait_run_plan_has_outer(const strait_run_plan *plan);

/* The most replicas of any stage. */
int strait_run_plan_replicas_max(const strait_run_plan *plan);

/* The codec of the boundary between stages `boundary` and `boundary` + 1. */
strait_codec_spec strait_run_plan_codec(const strait_run_plan *plan, int boundary, int n_slots);
