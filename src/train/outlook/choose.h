/* choose.h - link.codec.name auto: the widest code that keeps the wire off the critical path.
 *
 * Codes are tried from the widest on (codec/ladder.h). Each is planned as training would have it: a
 * simulated step over the links of the run file, or as workers have measured them, is compared with
 * the same delays, batch and schedule at infinite rate. The first code whose step is at most 3%
 * longer is chosen; where none is, the narrowest. The choice is written into the run as if the user
 * had named it, with the rates it was made for (link.codec.chosen_for), so that a run that is
 * resumed never chooses again. */
#pragma once

#include "codec/ladder.h"
#include "config/run_plan.h"
#include "train/outlook/measured.h"

typedef struct strait_choose_params {
    double flops_per_s; // of a stage's device; 0: measure the device of the run on this machine
    int shares_device;  // the stages compute on this machine and share its devices
    int is_swarm;       // token ids and copies of snapshots cross the links as well
    /* Stages and links as measured by the workers of a swarm, borrowed; NULL: those of the run file
     * count. */
    const strait_measured *measured;
} strait_choose_params;

enum {
    STRAIT_CHOICE_LIMIT = 96, // bytes of a description of a link
    STRAIT_CHOICE_TEXT = 1024,
    STRAIT_CHOICE_DEVICE = 64
};

typedef struct strait_choice {
    strait_codec_rung rung;
    int has_limits;                       // a link has a rate; otherwise the rest is 0
    int is_too_slow;                      // even this code, the narrowest, is on the critical path
    char decided_by[STRAIT_CHOICE_LIMIT]; // the slowest link: "link 1-2 (2mbit)"; empty: none
    double seconds, infinite_s;           // of a step, and at infinite rate
    double tokens_per_s;
    double bytes_per_token;            // of the larger direction, without headers
    int is_exact;                      // the code loses nothing
    strait_codec_price price;          // percent: not a number where it is not known
    int excludes_exports;              // the model could be exported to other programs without it
    char device[STRAIT_CHOICE_DEVICE]; // of the stage times
    int n_sharing;                     // stages that share a device
} strait_choice;

/* Chooses, and replaces the codec of the run. A run whose codec is not auto is left as it is, with
 * *out zeroed; so is a run of a swarm that has neither emulated nor measured rates yet.
 * STRAIT_ECONFIG, STRAIT_EDATA: the run cannot be planned. */
strait_err strait_choose_codec(strait_run *run, const strait_choose_params *params,
                               strait_choice *out);

/* Describes a choice for people, in lines: what was chosen, which link decided it, the expected
 * speed, its price in loss and which exports it excludes. Empty for a zeroed choice. */
void strait_choice_describe(const strait_choice *choice, char out[STRAIT_CHOICE_TEXT]);

/* The rate of a boundary's slower direction in bits per second: as measured, or of its links and of
 * the homes at its ends; 0: unlimited. */
double strait_choose_rate(const strait_run_plan *plan, const strait_measured *measured,
                          int boundary);

/* Compares the links with those that the codec was chosen for. `out` receives a warning about the
 * first one that is at most half or at least twice as fast, which names the ratio for the next run;
 * empty: there is none. Boundaries whose bit is set in *told are left out; the bit of one that is
 * warned of is set. Errors as strait_choose_codec. */
strait_err strait_choose_check(const strait_run *run, const strait_choose_params *params,
                               uint64_t *told, char out[STRAIT_CHOICE_TEXT]);

/* Gives a run whose codec is auto, or that names none, the codec of the run that `folder` holds, if
 * it holds one. */
strait_err strait_choose_recorded(strait_run *run, const char *folder);

/* strait_choose_codec for the run in `folder` (NULL: none yet): where it holds a run, and `run`
 * leaves the choice to the program, the codec of that run is taken instead, and so are the rows of
 * its tables and the size of its microbatches. `out` describes a choice that was made; empty: there
 * was none. */
strait_err strait_choose_in(strait_run *run, const char *folder, const strait_choose_params *params,
                            char out[STRAIT_CHOICE_TEXT]);

/* How a run of `strait train` chooses. */
strait_choose_params strait_choose_locally(const strait_run *run);
