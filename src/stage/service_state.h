/* serve_state.h - a stage that takes orders: what the ways of serving one share. */
#pragma once

#include "stage/service.h"

struct strait_service {
    strait_startup start;
    strait_run run;
    struct strait_identity *identity;
    struct strait_mesh *mesh;
    struct strait_loader *loader;
    strait_run_plan plan;
    struct strait_runner *worker;
    int coordinator, prev, next;          // peers of the mesh; -1: none
    struct strait_msg *command;           // came while we were busy
    uint64_t seen_forward, seen_backward; // bytes that came, counted by earlier replies
    int shares_links; // with copies of stages: frames of crossings are counted instead
    float *basis;     // room for one of a subspace codec
    int n_basis;
    /* The worker's; their user is the server. */
    strait_err (*on_other)(void *user, struct strait_msg **msg);
    strait_err (*on_look)(void *user);
};

/* From run and feed to the recipe and the room for a basis. */
strait_err strait_service_prepare(struct strait_service *server);

/* Carries out one order and fills the reply, but for its kind and its error. */
strait_err strait_service_execute(struct strait_service *server,
                                  const strait_stage_command *command, strait_reply *reply);
