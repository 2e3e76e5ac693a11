/* service.h - one stage that executes commands, whoever sends them.
 *
 * A service owns the runner of a stage (runner.h), its plan and its loader. It does not know where
 * commands come from: a stage process (stage_process.h) reads them from the mesh of a local run, a
 * swarm's worker from its link to the coordinator. Both call strait_service_execute. What differs
 * between them is in the hooks. One thread uses a service. */
#pragma once

#include "stage/commands.h"
#include "stage/runner.h"

struct strait_service;

/* Called from the service's thread. All but on_message may be NULL. */
typedef struct strait_service_hooks {
    void *user;
    /* A message on the links to the neighbours that is not a crossing. May take *msg and clear it.
     * An error ends the command being executed. */
    strait_err (*on_message)(void *user, struct strait_msg **msg);
    /* Called between actions of a step and many times a second while the stage waits. An error ends
     * the command. NULL: the stage may block, and waits for its neighbours when it opens. */
    strait_err (*on_poll)(void *user);
    /* As that of a runner: whether the command of `step` waits behind the one being executed. NULL:
     * no command does. */
    int (*on_next)(void *user, int64_t step, strait_next_step *out);
    /* Before a command: an error refuses it. */
    strait_err (*before)(void *user, const strait_stage_command *command);
    /* After a command that was not refused, with its error: may add to the reply. Returns the error
     * of the command. */
    strait_err (*after)(void *user, const strait_stage_command *command, strait_err err,
                        strait_stage_reply *reply);
    /* Executes STRAIT_COMMAND_SEND_SNAPSHOT. NULL: the command is refused. */
    strait_err (*send_snapshot)(void *user, int64_t step);
    /* Executes STRAIT_COMMAND_PROBE. NULL: the command is refused. */
    strait_err (*probe)(void *user, const strait_stage_command *command, strait_stage_reply *reply);
} strait_service_hooks;

typedef struct strait_service_spec {
    const strait_run *run; // copied
    int stage, replica;
    /* The links to the neighbours carry more than crossings: bytes of crossings are counted frame
     * by frame, not at the socket. */
    int counts_frames;
    int keeps_crossings; // for neighbours that compute steps again; see
                         // strait_runner_keep_crossings
    int is_elastic;      // replicas come and go: strait_service_set_replicas
    strait_service_hooks hooks;
} strait_service_spec;

/* Plans the stage; nothing is built before STRAIT_COMMAND_OPEN. Takes *loader and clears it, also
 * on an error. */
strait_err strait_service_open(const strait_service_spec *spec, struct strait_loader **loader,
                               struct strait_service **out);
void strait_service_close(struct strait_service **service); // accepts NULL

/* The mesh that joins the stage to its neighbours, borrowed, and the numbers of their first
 * replicas in it; -1: none. Commands add further ones. NULL ends the use of a mesh. */
void strait_service_set_links(struct strait_service *service, struct strait_mesh *mesh, int prev,
                              int next);

/* From now on the stage and its neighbours have so many replicas. For an elastic service, between
 * two meshes. Keeps the stage's weights and state. STRAIT_EPROTO: more than the plan has memory
 * for. */
strait_err strait_service_set_replicas(struct strait_service *service,
                                       const strait_stage_replicas *replicas);

/* Notes the peer of a further replica of this stage or of a neighbour. */
void strait_service_add_link(struct strait_service *service, strait_stage_side side, int replica,
                             int peer);

/* Sends each neighbour a description of our codec (boundary_check.h), once per mesh; theirs are
 * compared when they arrive. A service without on_poll does so by itself when it opens. */
strait_err strait_service_greet(struct strait_service *service);

/* Executes one command and fills *reply completely but for generation and sequence, its error
 * included. Borrowed parts of the reply are valid until the next command. Returns the error of the
 * command, which the reply also has. */
strait_err strait_service_execute(struct strait_service *service,
                                  const strait_stage_command *command, strait_stage_reply *reply);

/* Hands a message from the neighbours' mesh to the boundary it is for, or to on_message. */
strait_err strait_service_route(struct strait_service *service, struct strait_msg **msg);

/* The peers of this stage. */
const strait_stage_links *strait_service_links(const struct strait_service *service);

int strait_service_stage(const struct strait_service *service);
const strait_run *strait_service_get_run(const struct strait_service *service);
const strait_run_plan *strait_service_plan(const struct strait_service *service);
struct strait_loader *strait_service_loader(struct strait_service *service);
struct strait_runner *strait_service_runner(struct strait_service *service); // NULL before OPEN

/* Memory for the floats of the next command. */
strait_float_memory strait_service_floats(struct strait_service *service);
