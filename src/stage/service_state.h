/* service_state.h - the inside of a stage service, for its two files: service.c executes commands,
 * service_access.c tells about it and changes its replicas. */
#pragma once

#include "stage/boundary/boundary_check.h"
#include "stage/service.h"

struct strait_service {
    strait_run run;
    int stage, replica, counts_frames, keeps_crossings, is_elastic;
    strait_service_hooks hooks;
    strait_run_plan plan;
    struct strait_loader *loader;
    struct strait_runner *runner; // NULL before OPEN
    strait_stage_links links;
    float *basis; // memory for one of a subspace codec
    int n_basis;
    char reason[512];                     // of the last command's error
    struct strait_boundary_checks checks; // of the neighbours' codecs
};
